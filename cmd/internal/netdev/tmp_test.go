package netdev
import ("testing";"fmt";"github.com/culvert-cni/culvert/test/netns")
func BenchmarkX(b *testing.B){
  ns:=netns.New(b,"n")
  ns.IP(b,"link add up0 type veth peer name p0","link set up0 up","link set p0 up","addr add 10.0.0.1/24 dev up0","addr add fd01::1/64 dev up0 nodad","route add default via 10.0.0.2","route add default via fd01::2")
  var lines []string
  for i:=0;i<500;i++ { lines=append(lines,fmt.Sprintf("route add 10.244.%d.%d/32 dev up0 proto 67",i/250,i%250+1),fmt.Sprintf("route add fd00:244::%x/128 dev up0 proto 67",i+1)) }
  for i:=0;i<250;i++ { lines=append(lines,fmt.Sprintf("link add va%d type veth peer name vb%d",i,i),fmt.Sprintf("addr add fe80::1/64 dev va%d nodad",i),fmt.Sprintf("addr add fe80::2/64 dev vb%d nodad",i)) }
  ns.IP(b,lines...)
  err:=ns.Do(func() error { h,err:=Open(); if err!=nil {return err}; defer h.Close()
    for _,f:=range []struct{n string;f func() error}{{"v4",func() error{_,e:=h.defaultRoutes(2);return e}},{"v6",func() error{_,e:=h.defaultRoutes(10);return e}},{"addr",func() error{_,e:=h.addressed();return e}},{"link",func() error{_,e:=h.LinkNamed("nosuch");_=e;return nil}},{"all",func() error{_,e:=h.Uplinks(nil,func(string)bool{return false});return e}}} {
     b.Run(f.n,func(b *testing.B){ })
     r:=testing.Benchmark(func(b *testing.B){ for i:=0;i<b.N;i++ { if e:=f.f();e!=nil{ panic(e)} } })
     fmt.Println(f.n,r)
    }
    return nil})
  if err!=nil {b.Fatal(err)}
}

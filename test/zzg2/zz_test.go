package zz
import ("testing";"fmt";"time";"net/netip";"sort";"github.com/culvert-cni/culvert/test/netns")
func TestRates(t *testing.T){
  c:=netns.Wire(t,netns.Layout{})
  node:=c.Nodes[0]; out:=c.Outside()
  peer:=node.Add(t,netns.PodSpec{Name:"peer"})
  for _,rate:=range []uint64{1e6,10e6,100e6,1e9} { for _,burst:=range []uint64{0,1<<32-1} { for _,d:=range []string{"in","eg"} {
    bw:=&netns.Bandwidth{IngressRate:rate,IngressBurst:burst}
    if d=="eg" { bw=&netns.Bandwidth{EgressRate:rate,EgressBurst:burst} }
    p:=node.Add(t,netns.PodSpec{Name:fmt.Sprintf("p%d%s%d",rate,d,burst),Bandwidth:bw})
    for _,to:=range []struct{n string; ns *netns.NS; a netip.Addr}{{"out",out.NS,out.Addr(4)},{"pod",peer.NS,peer.Addr(4)},{"host",node.NS,node.Uplinks[0].Addr(4)}} {
     for _,proto:=range []string{"tcp","udp"} {
      s:=netns.Stream{Proto:proto,From:p.NS,To:to.ns,Dst:to.a,Offer:rate*3/2,Warmup:700*time.Millisecond,Window:2*time.Second}
      if d=="in" { s.From,s.To,s.Dst=to.ns,p.NS,p.Addr(4) }
      done:=make(chan struct{}); var rtts []float64; stop:=make(chan struct{})
      go func(){ defer close(done); for { select{case <-stop: return; default:}; st:=time.Now(); if err:=s.From.Ping(s.Dst,56,2*time.Second); err==nil { rtts=append(rtts,float64(time.Since(st).Microseconds())/1000)}; time.Sleep(20*time.Millisecond) } }()
      r,err:=s.Rate(); close(stop); <-done
      sort.Float64s(rtts); m:=0.0; if len(rtts)>0 { m=rtts[len(rtts)/2] }
      fmt.Printf("%5.0fM burst %d %s %s %s: %.3f rtt p50 %.1f ms %v\n",float64(rate)/1e6,burst>>31,d,to.n,proto,r/float64(rate),m,err)
    } }
    p.Del(t)
  } } }
}

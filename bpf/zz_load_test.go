package bpf
import ("testing";"github.com/cilium/ebpf";"errors")
func TestPrivilegedLoadX(t *testing.T){
 spec,err:=LoadDatapath(); if err!=nil {t.Fatal(err)}
 c,err:=ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
 if err!=nil { var ve *ebpf.VerifierError; if errors.As(err,&ve) { n:=len(ve.Log); if n>60 { ve.Log=ve.Log[n-60:] }; for _,l:=range ve.Log { t.Log(l) } }; t.Fatalf("%v",err)}
 for n,p:=range c.Programs { i,_:=p.Info(); vi,_:=i.VerifiedInstructions(); t.Log(n, vi) }
 c.Close()
}

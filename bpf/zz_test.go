package bpf_test
import ("testing";"github.com/culvert-cni/culvert/test/packet")
func TestZZ(t *testing.T){ packet.Load(nil)}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// trace starts culvertctl on the node, which follows what matches args.
func trace(t *testing.T, n *netns.Node, args ...string) *netns.Tracer {
	t.Helper()
	return netns.Trace(t, n.Start, filepath.Join(n.Bin.Dir, "culvertctl"), append(args, "--pin-path", n.PinPath)...)
}

// O2: with a filter, trace tells at each hook on a packet's way what became of it: where
// culvert carries it, by whom it was translated, and where it left it to the stack.
func TestPrivilegedO2TracePaths(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	pod, server := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	masq, _ := serve(t, node, netns.PodSpec{Name: "masq", Conf: masquerading()})
	far := outside.Serve(t, 80)
	id := func(p *netns.Pod) string { return p.ID + "/" + p.IfName }
	for _, v := range families {
		up, at := node.Uplinks[0], node.Uplinks[0].Addr(v)
		hostPort, behind := netip.AddrPortFrom(at, 8080).String(), netip.AddrPortFrom(pod.Addr(v), 80).String()
		away := netip.AddrPortFrom(outside.Addr(v), 80).String()

		tr := trace(t, node, "--host", outside.Addr(v).String(), "--proto", "udp")
		ask(t, outside.NS, call("udp", at, 8080), want{server: server.Name})
		in := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_uplink" && r.Dst == hostPort })
		if in.Verdict != "redirect" || in.ToDst != behind || in.ToSrc != in.Src || in.Device != up.Dev || in.OutDevice != pod.Host.Name || in.OutPod != id(pod) {
			t.Errorf("request: %+v", in)
		}
		out := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_pod" && r.Src == behind })
		if out.Verdict != "redirect" || out.ToSrc != hostPort || out.Dst != in.Src || out.Device != pod.Host.Name || out.Pod != id(pod) || out.OutDevice != up.Dev {
			t.Errorf("answer: %+v", out)
		}
		if last := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "to_uplink" }); last.Verdict != "redirected" || last.Src != hostPort || last.Device != up.Dev {
			t.Errorf("answer at the uplink: %+v", last)
		}
		ask(t, masq.NS, call("udp", outside.Addr(v), 80), want{server: far.Name, remote: only(at)})
		if up := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_pod" && r.Dst == away }); up.Verdict != "pass" || up.Pod != id(masq) {
			t.Errorf("to the stack: %+v", up)
		}
		if m := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "to_uplink" && r.Dst == away }); m.Verdict != "pass" || m.ToSrc == m.Src || m.Pod != id(masq) {
			t.Errorf("masqueraded: %+v", m)
		}
		if m := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_uplink" && r.Src == away }); m.Verdict != "pass" || m.ToDst == m.Dst {
			t.Errorf("its answer: %+v", m)
		}
		tr.Stop(t)

		tr = trace(t, node, "--pod", pod.ID, "--port", "80", "--proto", "tcp")
		ask(t, node.NS, call("tcp", at, 8080), want{server: server.Name})
		if host := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_host" }); host.Verdict != "redirect" || host.Dst != hostPort || host.ToDst != behind || host.TCPFlags != "S" || host.Device != "lo" {
			t.Errorf("from the host: %+v", host)
		}
		if back := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "from_pod" }); back.Verdict != "redirect" || back.OutDevice != "lo" || back.TCPFlags != "S." {
			t.Errorf("to the host: %+v", back)
		}
		ask(t, node.NS, call("tcp", pod.Addr(v), 80), want{server: server.Name})
		if down := tr.Find(t, func(r netns.Traced) bool { return r.Hook == "to_pod" && r.Verdict == "pass" }); down.Dst != behind || down.Pod != id(pod) {
			t.Errorf("from the stack: %+v", down)
		}
		for _, r := range tr.Rest(t) {
			if !strings.HasSuffix(r.Src, ":80") && !strings.HasSuffix(r.Dst, ":80") && !strings.HasSuffix(r.ToDst, ":80") && !strings.HasSuffix(r.ToSrc, ":80") || r.Proto != "tcp" {
				t.Errorf("not asked for: %+v", r)
			}
		}
	}
}

// O2: a second trace names the first one, and one that is killed leaves the way free at once.
func TestPrivilegedO2TraceOfOne(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{}, "source")
	f := newForger(t, c)
	node := f.node
	first := trace(t, node)
	program := filepath.Join(node.Bin.Dir, "culvertctl")
	out, err := node.Run("", program, "--pin-path", node.PinPath, "trace")
	if err == nil || !strings.Contains(err.Error(), "(culvertctl) follows packets already") {
		t.Errorf("a second one: %v: %s", err, out)
	}
	first.Kill()
	second := trace(t, node, "--count", "1")
	forged := f.packet(netip.MustParseAddr("192.0.2.66"), f.victim.V4)
	forged.Transport = packet.UDP{Src: 40000, Dst: 80}
	if err := f.link.Send(forged.Frame()); err != nil {
		t.Fatal(err)
	}
	if row := second.Next(t); row.Verdict != "drop" || row.Reason != "source" || row.Src != "192.0.2.66:40000" || row.Pod != f.pod.ID+"/"+f.pod.IfName {
		t.Errorf("told of %+v", row)
	}
	second.Stop(t)
}

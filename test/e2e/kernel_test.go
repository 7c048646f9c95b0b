// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// release is the kernel's, and whether it is at least so new.
func release(t *testing.T, major, minor int) (string, bool) {
	t.Helper()
	r := netns.Kernel()
	var x, y int
	if _, err := fmt.Sscanf(r, "%d.%d", &x, &y); err != nil {
		t.Fatalf("read kernel release %q: %v", r, err)
	}
	return r, x > major || x == major && y >= minor
}

// status is what `culvertctl status -o json` says, with faults or without.
func status(t *testing.T, n *netns.Node) (s struct {
	Kernel           string
	Loaded           bool
	Features         map[string]bool
	Faults, Warnings []struct{ What, Remedy string }
}) {
	t.Helper()
	out, err := n.Run("", filepath.Join(n.Bin.Dir, "culvertctl"), "--pin-path", n.PinPath, "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("decode status %q: %v", out, err)
	}
	if (err != nil) != (len(s.Faults) > 0) {
		t.Errorf("status ends with %v, faults %v", err, s.Faults)
	}
	return s
}

// ways are the programs of ours that a hook has by tcx and by clsact.
func (h hook) ways(t *testing.T, ours ebpf.ProgramID) (byTCX, byClsact int) {
	t.Helper()
	index := devices(t, h.node.NS)[h.dev].Index
	var tcx []ebpf.ProgramID
	err := h.node.Do(func() error {
		r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.tcx()})
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) { // before 6.6
			return nil
		}
		if err == nil {
			for _, p := range r.Programs {
				tcx = append(tcx, p.ID)
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("list programs at %s: %v", h, err)
	}
	count := func(ids []ebpf.ProgramID) (n int) {
		for _, id := range ids {
			if id == ours {
				n++
			}
		}
		return n
	}
	byTCX = count(tcx)
	return byTCX, count(h.programs(t)) - byTCX
}

// X1: how the programs are attached on this kernel, by each value of "attach": tcx is there
// from 6.6 on, and before that clsact takes its place unless tcx was asked for by name.
func TestPrivilegedX1Attach(t *testing.T) {
	t.Parallel()
	r, tcx := release(t, 6, 6)
	for _, tc := range []struct {
		mode          string
		shared, ofPod bool // by tcx
	}{{"auto", tcx, false}, {"clsact", false, false}, {"tcx", true, true}} {
		if tc.mode == "tcx" && !tcx {
			continue // TestPrivilegedO3NoTCX
		}
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			node := wire(t, netns.Layout{}).Nodes[0]
			a := node.Add(t, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Conf: map[string]any{"attach": tc.mode}})
			for program, at := range map[string]struct {
				hook
				tcx bool
			}{
				"from_uplink": {hook{node, "up0", false}, tc.shared}, "to_uplink": {hook{node, "up0", true}, tc.shared},
				"from_host": {hook{node, "lo", true}, tc.shared},
				"from_pod":  {hook{node, a.Host.Name, false}, tc.ofPod}, "to_pod": {hook{node, a.Host.Name, true}, tc.ofPod},
			} {
				byTCX, byClsact := at.ways(t, pinned(t, node, program))
				if want := map[bool][2]int{true: {1, 0}, false: {0, 1}}[at.tcx]; want != [2]int{byTCX, byClsact} {
					t.Errorf("kernel %s: %s at %s: %d by tcx and %d by clsact, want %v", r, program, at.hook, byTCX, byClsact, want)
				}
			}
			if s := status(t, node); s.Features["tcx"] != tcx || !s.Features["conntrack"] || len(s.Faults) > 0 || s.Kernel != r {
				t.Errorf("status: %+v, want tcx %v and conntrack, no fault", s, tcx)
			}
		})
	}
}

// O3: "attach": "tcx" before 6.6 is refused in a sentence that says what to do, by ADD and by
// STATUS, and leaves nothing; where the kernel has it, STATUS has nothing to say.
func TestPrivilegedO3NoTCX(t *testing.T) {
	t.Parallel()
	node := wire(t, netns.Layout{}).Nodes[0]
	node.Add(t, netns.PodSpec{Name: "loads"})
	spec := netns.PodSpec{Name: "a", NS: netns.New(t, "a"), Conf: map[string]any{"attach": "tcx"}}
	conf := node.Conf()
	conf["attach"] = "tcx"
	_, status := node.Exec("STATUS", nil, conf)
	r, tcx := release(t, 6, 6)
	if tcx {
		if status != nil {
			t.Errorf("STATUS: %v", status)
		}
		node.Add(t, spec)
		return
	}
	p, err := node.TryAdd(spec)
	if err == nil {
		p.Del(t)
	}
	for verb, got := range map[string]error{"ADD": err, "STATUS": status} {
		code := map[string]uint{"ADD": 103, "STATUS": 50}[verb]
		if netns.Code(got) != code || !strings.Contains(got.Error(), r+" has no tcx") || !strings.Contains(got.Error(), `set attach to "auto"`) {
			t.Errorf("%s: got %v, want error %d that says what to do", verb, got, code)
		}
	}
}

// N1, N3: a packet from outside or from the next pod goes straight into a pod without a limit
// (redirect_peer), past the host's side of its veth, and through that side to a pod with
// one; either way it bears the MAC addresses of the pod's link.
func TestPrivilegedN1IntoThePod(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	from := node.Add(t, netns.PodSpec{Name: "from"})
	for _, tc := range []struct {
		name  string
		limit *netns.Bandwidth
		past  bool // the host's side
	}{{"Unlimited", nil, true}, {"Limited", &netns.Bandwidth{IngressRate: 100e6, IngressBurst: 1e6}, false}} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := serve(t, node, netns.PodSpec{Name: "to" + strings.ToLower(tc.name), Bandwidth: tc.limit})
			inside, hostSide := p.Link(t, p.IfName), node.Link(t, p.Host.Name)
			links := slices.Concat(packetMAC(t, p.Inside.MAC), packetMAC(t, p.Host.MAC))
			for _, v := range families {
				for _, client := range []struct {
					ns   *netns.NS
					addr netip.Addr
				}{{from.NS, from.Addr(v)}, {outside.NS, outside.Addr(v)}} {
					ask(t, client.ns, call("udp", p.Addr(v), 80), want{server: p.Name, remote: only(client.addr)})
					request := func(f []byte) bool {
						s := read(f)
						return s.proto == packet.ProtoUDP && s.src == client.addr && s.dst == p.Addr(v)
					}
					frame, err := inside.Next(request)
					if err != nil || !bytes.Equal(frame[:12], links) {
						t.Errorf("from %s: inside the pod: % x, want the MAC addresses % x (%v)", client.ns.Name, frame, links, err)
					}
					// The answer came back: what is to be seen of the request has been.
					frame, err = hostSide.TryNext(request)
					if err != nil || (frame == nil) != tc.past {
						t.Errorf("from %s: on the host's side: % x, want none: %v (%v)", client.ns.Name, frame, tc.past, err)
					}
				}
			}
		})
	}
}

func packetMAC(t *testing.T, text string) []byte {
	t.Helper()
	m := mac(t, text)
	return m[:]
}

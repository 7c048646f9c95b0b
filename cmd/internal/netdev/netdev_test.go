// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

func TestDump(t *testing.T) {
	for _, tt := range []struct {
		name  string
		torn  int
		fault error
		want  error
	}{
		{"whole at once", 0, netlink.ErrDumpInterrupted, nil},
		{"torn twice", 2, netlink.ErrDumpInterrupted, nil},
		{"a signal", 1, unix.EINTR, nil},
		{"torn for ever", 1 << 20, netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted},
		{"another error", 1, unix.EPERM, unix.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			left := tt.torn
			got, err := dump(func() (int, error) {
				if left--; left >= 0 {
					return 1, tt.fault
				}
				return 2, nil
			})
			if !errors.Is(err, tt.want) || tt.want == nil && got != 2 {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func TestOpenNamespace(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]error{socket: ErrNotNamespace, "/no/such": fs.ErrNotExist, "/dev/null": ErrNotNamespace, "/proc/self/ns/uts": ErrNotNamespace, "/": ErrNotNamespace} {
		if _, err := OpenNamespace(path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	ns, err := OpenNamespace("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if ours, err := ns.IsOurs(); err != nil || !ours {
		t.Errorf("our own namespace: got %v, %v", ours, err)
	}
}

// in runs a test with a handle on a namespace, on a thread that is in it.
func in(t *testing.T, ns *netns.NS, f func(h *Handle)) {
	t.Helper()
	err := ns.Do(func() error {
		h, err := Open()
		if err != nil {
			return err
		}
		defer h.Close()
		f(h)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPrivilegedVeth(t *testing.T) {
	node, pod := netns.New(t, "node"), netns.New(t, "pod")
	mac, peer := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	in(t, node, func(h *Handle) {
		ns, err := OpenNamespace(pod.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		want := Veth{Name: "cv0", MAC: mac, PeerName: "eth0", PeerMAC: peer, Peer: ns, MTU: 1400}
		l, err := h.CreateVeth(want)
		if err != nil {
			t.Fatal(err)
		}
		inside, err := OpenIn(ns)
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Close()
		p, err := inside.LinkNamed("eth0")
		if err != nil || l.PeerIndex != p.Index || p.PeerIndex != l.Index || l.MTU != 1400 || p.MTU != 1400 || l.Up || p.Up {
			t.Errorf("ends are %+v and %+v, %v", l, p, err)
		}
		if l.MAC.String() != mac.String() || p.MAC.String() != peer.String() || l.Kind != "veth" || !l.Ethernet {
			t.Errorf("ends are %+v and %+v", l, p)
		}
		want.Name = "cv1"
		if _, err := h.CreateVeth(want); !errors.Is(err, fs.ErrExist) {
			t.Errorf("taken name of the peer: got %v", err)
		}
		if _, err := h.LinkNamed("cv1"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("half a pair is left: %v", err)
		}
		for range 2 {
			if err := h.DeleteLink(l.Index); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPrivilegedUplinks(t *testing.T) {
	node := netns.New(t, "node")
	node.IP(t,
		"link add up0 type veth peer name p0", "link set up0 up", "link set p0 up", "addr add 10.0.0.1/24 dev up0",
		"link add up1 mtu 1400 type veth peer name p1", "link set up1 up", "link set p1 up", "addr add fd01::1/64 dev up1 nodad",
		"link add bare type veth peer name p2", "link set bare up", "link set p2 up",
		"link add unnumbered type veth peer name p3", "link set unnumbered up", "link set p3 up",
		"link add br0 type bridge", "link set br0 up", "addr add 172.17.0.1/16 dev br0",
		"link add cv0 type veth peer name p4", "link set cv0 up", "addr add 10.4.0.1/32 dev cv0",
		"tuntap add tun0 mode tun", "link set tun0 up", "addr add 10.5.0.1/24 dev tun0",
		"addr add 10.6.0.1/32 dev lo",
		"addr add 169.254.7.1/16 scope link dev bare",
		"route add default metric 10 nexthop via 10.0.0.2 nexthop dev unnumbered",
		"route add unreachable default metric 4294967294 proto 67",
	)
	ours := func(name string) bool { return name == "cv0" }
	in(t, node, func(h *Handle) {
		u, err := h.Uplinks(nil, ours)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := names(u.Links), []string{"br0", "unnumbered", "up0", "up1"}; !slices.Equal(got, want) {
			t.Errorf("uplinks %v, want %v", got, want)
		}
		if got := names(u.LeftOut); !slices.Equal(got, []string{"tun0"}) {
			t.Errorf("left out %v", got)
		}
		if !u.Default4 || u.Default6 {
			t.Errorf("default routes: %v, %v", u.Default4, u.Default6)
		}
		u, err = h.Uplinks([]string{"up1"}, ours)
		if err != nil || !slices.Equal(names(u.Links), []string{"up1"}) || u.Links[0].MTU != 1400 || !u.Default4 {
			t.Errorf("named: %+v, %v", u, err)
		}
		for _, name := range []string{"nosuch", "tun0", "lo"} {
			var no NoSuchUplink
			if _, err := h.Uplinks([]string{"up0", name}, ours); !errors.As(err, &no) || no.Name != name {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if err := h.SetUnreachable(6); err != nil {
			t.Error(err)
		}
		if u, _ := h.Uplinks(nil, ours); u.Default6 {
			t.Error("our own unreachable route counts as a default route")
		}
		for range 2 {
			if err := h.DeleteUnreachable(6); err != nil {
				t.Error(err)
			}
		}
	})
}

func names(links []Link) []string {
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

// X1: foreign filters stay, and ours is there once after any number of runs.
func TestPrivilegedClsact(t *testing.T) {
	ns := netns.New(t, "node")
	ns.IP(t, "link add va type veth peer name vb")
	ns.MustRun(t, "", "tc", "qdisc", "add", "dev", "va", "clsact")
	prog := loadProgram(t)
	in(t, ns, func(h *Handle) {
		l, err := h.LinkNamed("va")
		if err != nil {
			t.Fatal(err)
		}
		foreign := ourFilter(l.Index, true)
		foreign.Priority, foreign.Fd, foreign.Name = 1, prog, "foreign"
		if err := h.nl.FilterAdd(foreign); err != nil {
			t.Fatal(err)
		}
		if on, err := h.HasClsact(l.Index, true); err != nil || on {
			t.Errorf("before: %v, %v", on, err)
		}
		for range 3 {
			if err := h.AttachClsact(l.Index, true, prog, "culvert_to_pod"); err != nil {
				t.Fatal(err)
			}
		}
		if on, err := h.HasClsact(l.Index, true); err != nil || !on {
			t.Errorf("after: %v, %v", on, err)
		}
		if on, err := h.HasClsact(l.Index, false); err != nil || on {
			t.Errorf("the other hook: %v, %v", on, err)
		}
		if out := ns.MustRun(t, "", "tc", "filter", "show", "dev", "va", "egress"); strings.Count(out, "culvert_to_pod") != 1 || !strings.Contains(out, "foreign") {
			t.Errorf("filters: %s", out)
		}
		for range 2 {
			if err := h.DetachClsact(l.Index, true); err != nil {
				t.Error(err)
			}
		}
		if out := ns.MustRun(t, "", "tc", "filter", "show", "dev", "va", "egress"); strings.Contains(out, "culvert") || !strings.Contains(out, "foreign") {
			t.Errorf("filters: %s", out)
		}
		if err := h.AttachClsact(4711, true, prog, "x"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("no device: got %v", err)
		}
	})
}

func TestPrivilegedRoutes(t *testing.T) {
	ns := netns.New(t, "pod")
	ns.IP(t, "link add va type veth peer name vb", "link set vb up")
	in(t, ns, func(h *Handle) {
		l, err := h.LinkNamed("va")
		if err != nil {
			t.Fatal(err)
		}
		want := []Route{
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Gateway: netip.MustParseAddr("169.254.1.1"), MTU: 1300, AdvMSS: 1200, Priority: 5, Table: 1000},
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.9.9.9"), Protocol: 67},
			{Dst: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fe80::1"), Priority: 7},
		}
		end := End{Index: l.Index, Name: "va", Routes: want, Addrs: []Address{{Prefix: netip.MustParsePrefix("10.1.0.2/32")}, {Prefix: netip.MustParsePrefix("fd00::2/128")}}}
		for range 2 { // idempotent
			if err := h.Configure(end); err != nil {
				t.Fatal(err)
			}
		}
		peer, err := h.LinkNamed("vb")
		if err != nil {
			t.Fatal(err)
		}
		for i, behind := range []int{6, 1, 1025} {
			r, err := h.AddRoute(peer.Index, []Route{want[0], want[1], {Dst: want[2].Dst, Gateway: want[2].Gateway, Priority: 1024}}[i])
			if err != nil || i < 2 && r.Priority != behind || i == 2 && r.Priority != 1024 {
				t.Errorf("route behind another: %+v, %v", r, err)
			}
		}
		got, err := h.Routes(l.Index)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !slices.ContainsFunc(got, func(r Route) bool {
				return r.Dst == w.Dst && r.Gateway == w.Gateway && r.MTU == w.MTU && r.AdvMSS == w.AdvMSS && (r.Table == w.Table || w.Table == 0)
			}) {
				t.Errorf("no %+v in %+v", w, got)
			}
		}
		addrs, err := h.Addresses(l.Index)
		if err != nil || !slices.Contains(addrs, netip.MustParseAddr("10.1.0.2")) || !slices.Contains(addrs, netip.MustParseAddr("fd00::2")) {
			t.Errorf("addresses %v, %v", addrs, err)
		}
	})
}

// N9: the node's IPv6 default route, learnt by router advertisement, survives that
// forwarding is switched on.
func TestPrivilegedForwardingKeepsAdvertisedRoute(t *testing.T) {
	n := netns.Wire(t, netns.Layout{})
	node, dev := n.Nodes[0], n.Nodes[0].Uplinks[0].Dev
	node.IP(t, "route del default dev "+dev+" via fd00:10::1")
	node.Sysctl(t, "net/ipv6/conf/all/forwarding", "0")
	node.Sysctl(t, "net/ipv6/conf/"+dev+"/accept_ra", "1")
	hasDefault := func() error {
		if out := node.MustRun(t, "", "ip", "-6", "route", "show", "default"); !strings.Contains(out, "proto ra") {
			return errors.New("no default route of an advertisement: " + out)
		}
		return nil
	}
	err := netns.Poll(func() error {
		if err := n.Outside().Advertise(n.Outside().Dev, 1800e9); err != nil {
			return err
		}
		return hasDefault()
	})
	if err != nil {
		t.Fatal(err)
	}
	in(t, node.NS, func(h *Handle) {
		for range 2 {
			if err := h.EnableForwarding(true, true); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := hasDefault(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"net/ipv6/conf/" + dev + "/accept_ra": "2", "net/ipv6/conf/lo/accept_ra": "1",
		"net/ipv6/conf/all/forwarding": "1", "net/ipv4/ip_forward": "1",
	} {
		if got := node.GetSysctl(t, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func loadProgram(t *testing.T) int {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog.FD()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// bed is a node with an agent and a cluster that says what the test wants.
type bed struct {
	*agent.Agent
	ns      *netns.NS
	node    *node
	cluster *agent.FakeCluster
}

// onNode calls f inside the namespace of a node.
func onNode(t *testing.T, f func(b *bed)) {
	ns := netns.New(t, "node")
	ns.IP(t, "link add eth0 type veth peer name wire", "link set wire up", "link set eth0 up",
		"addr add 192.0.2.1/24 dev eth0", "addr add 2001:db8::1/64 dev eth0 nodad", "route add default via 192.0.2.254")
	pins, conf := netns.NodePins(t), t.TempDir()
	enter(t, ns)
	handle, err := netdev.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	log := slog.New(slog.DiscardHandler)
	b := &bed{ns: ns, node: &node{net: handle, pinPath: pins, log: log, loads: true}, cluster: &agent.FakeCluster{Known: true}}
	b.Agent = &agent.Agent{
		Config:  agent.Config{Tunnel: agent.TunnelAuto, TunnelPort: 4789, ConfDir: conf, PinPath: pins, CNIVersion: agent.LatestCNI, Masquerade: true},
		Cluster: b.cluster, Node: b.node, Teller: &agent.FakeTeller{}, Log: log, Now: time.Now,
	}
	via := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	b.cluster.Now = kube.State{
		Node:   kube.Peer{Name: "n1", Addrs: via("192.0.2.1")},
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1:1::/64")},
		Peers:  []kube.Peer{{Name: "near", Addrs: via("192.0.2.2")}},
		Remote: []kube.Range{
			{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Node: "near", Via: via("192.0.2.2")},
			{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Node: "far", Via: via("198.51.100.3")},
			{Prefix: netip.MustParsePrefix("fd00:1:3::/64"), Node: "far", Via: via("198.51.100.3")},
		},
	}
	f(b)
}

// enter moves the test to a thread inside the namespace, which ends with the test.
func enter(t *testing.T, ns *netns.NS) {
	t.Helper()
	file, err := os.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runtime.LockOSThread() // never unlocked
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// seen is all that the agent made, a line each.
func (b *bed) seen(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(b.ns.MustRun(t, "", "ip", family, "route", "show", "proto", "68")) {
			line = strings.TrimSpace(line)
			line, _, _ = strings.Cut(line, " metric")
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	err := b.node.with(func(dp *loader.Datapath) error {
		rows, err := maps.Collect(dp.Maps.Remotes.All())
		slices.SortFunc(rows, func(a, b maps.Remote) int { return a.Prefix.Compare(b.Prefix) })
		for _, r := range rows {
			lines = append(lines, fmt.Sprintf("%s %s %s device:%v", r.Prefix, r.Kind, r.Endpoint, r.Ifindex != 0))
		}
		link, err2 := b.node.net.LinkNamed(netdev.TunnelName)
		if err2 == nil {
			lines = append(lines, fmt.Sprintf("%s mtu %d programs:%v", link.Name, link.MTU, dp.CheckTunnel(link.Index) == nil))
		}
		config, err2 := dp.Maps.Config.Get()
		for _, u := range config.Uplinks {
			lines = append(lines, fmt.Sprintf("with ports:%v, by the tunnel:%v as %s %s", config.PortCount() > 0, u.Ifindex == link.Index, u.Addr4, u.Addr6))
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Fatal(err)
	}
	on, err := b.node.net.Forwards(true, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(b.ConfDir, agent.ConflistName))
	lines = append(lines, fmt.Sprintf("forwards:%v conflist:%v", on, err == nil))
	return strings.Join(lines, "\n")
}

const wantSeen = `unreachable 10.1.1.0/24
10.1.2.0/24 via 192.0.2.2 dev eth0
10.1.3.0/24 via 169.254.1.1 dev culvert-vxlan src 10.1.1.0
unreachable fd00:1:1::/64 dev lo
fd00:1:3::/64 via fe80::1 dev culvert-vxlan src fd00:1:1::
10.1.2.0/24 direct 192.0.2.2 device:true
10.1.3.0/24 tunnel 198.51.100.3 device:true
192.0.2.2/32 node 192.0.2.2 device:false
fd00:1:3::/64 tunnel 198.51.100.3 device:true
culvert-vxlan mtu 1450 programs:true
with ports:true, by the tunnel:true as 10.1.1.0 fd00:1:1::
forwards:true conflist:true`

// The node becomes what the State says, and what somebody removes comes back.
func TestPrivilegedAgentNode(t *testing.T) {
	onNode(t, func(b *bed) {
		sync := func(after string) {
			t.Helper()
			if err := b.Sync(t.Context()); err != nil {
				t.Errorf("after %s: %v", after, err)
			}
			if got := b.seen(t); got != wantSeen {
				t.Errorf("after %s:\n%s\nwant:\n%s", after, got, wantSeen)
			}
			if r := b.Report(); !r.Ready || len(r.Missing()) != 0 {
				t.Errorf("after %s: %v", after, r.Missing())
			}
		}
		sync("the first look")
		sync("another look")
		for _, gone := range []struct {
			what   string
			remove func()
		}{
			{"routes", func() {
				b.ns.MustRun(t, "", "ip", "-4", "route", "flush", "proto", "68")
				b.ns.MustRun(t, "", "ip", "-6", "route", "flush", "proto", "68")
			}},
			{"the device", func() { b.ns.IP(t, "link delete culvert-vxlan") }},
			{"the MTU", func() { b.ns.IP(t, "link set culvert-vxlan mtu 1400") }},
			{"an address", func() { b.ns.IP(t, "addr del 10.1.1.0/32 dev culvert-vxlan") }},
			{"forwarding", func() { b.ns.Sysctl(t, "net/ipv4/ip_forward", "0") }},
			{"the file", func() { os.Remove(filepath.Join(b.ConfDir, agent.ConflistName)) }},
			{"the tables", func() { os.RemoveAll(b.PinPath) }},
			{"a row", func() {
				b.rows(t, func(r *maps.Remotes) error { return r.Delete(netip.MustParsePrefix("10.1.2.0/24")) })
			}},
			{"another row", func() {
				b.rows(t, func(r *maps.Remotes) error {
					return r.Put(maps.Remote{Prefix: netip.MustParsePrefix("10.7.0.0/16"), Kind: maps.RemoteDirect})
				})
			}},
		} {
			gone.remove()
			if b.seen(t) == wantSeen && gone.what != "the tables" && gone.what != "an address" {
				t.Errorf("%s: nothing was removed", gone.what)
			}
			sync(gone.what)
		}
	})
}

func (b *bed) rows(t *testing.T, f func(*maps.Remotes) error) {
	t.Helper()
	if err := b.node.with(func(dp *loader.Datapath) error { return f(dp.Maps.Remotes) }); err != nil {
		t.Fatal(err)
	}
}

// A node whose addresses are all held says what STATUS says.
func TestPrivilegedAgentFull(t *testing.T) {
	onNode(t, func(b *bed) {
		b.cluster.Now.Ranges = []netip.Prefix{netip.MustParsePrefix("10.1.1.0/30")}
		if err := b.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := loader.OpenAddresses(b.node.options())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		lease := maps.Lease{Addr: netip.MustParseAddr("10.1.1.2"), State: maps.AddressHeld, Since: time.Second,
			Owner: maps.Owner{Network: agent.NetworkName, Container: "pod", IfName: "eth0"}}
		if err := a.Claim(lease); err != nil {
			t.Fatal(err)
		}
		if err := b.Sync(t.Context()); err == nil || b.Report().Ready || !strings.Contains(err.Error(), "all 1 are held") {
			t.Errorf("a full node: %v", err)
		}
		list, err := newLeases(b.PinPath).list()
		if err != nil || len(list) != 1 || list[0].Addr != lease.Addr || list[0].Container != "pod" || list[0].Released || time.Since(list[0].Since) < 0 {
			t.Errorf("leases: %+v, %v", list, err)
		}
	})
}

// What no sandbox has goes, rows and address alike; another network's stays, and that of a
// container beside the runtime, which has no sandbox.
func TestPrivilegedAgentCollects(t *testing.T) {
	onNode(t, func(b *bed) {
		if err := b.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		owner := func(network, id string) maps.Owner {
			return maps.Owner{Network: network, Container: id, IfName: "eth0"}
		}
		lost, alive, other := owner(agent.NetworkName, "lost"), owner(agent.NetworkName, "alive"), owner("other", "lost")
		beside := owner(agent.NetworkName, "beside")
		err := b.node.with(func(dp *loader.Datapath) error {
			var errs []error
			for i, o := range []maps.Owner{lost, alive, other, beside} {
				path := "/var/run/netns/cni-" + o.Container
				if o == beside {
					path = "/proc/4711/ns/net"
				}
				errs = append(errs, dp.Maps.Ifaces.Put(maps.Iface{Ifindex: 1000 + i, Owner: o, Generation: 1, NetnsPath: path,
					Addrs: []netip.Addr{netip.MustParseAddr("10.1.1.5")}}))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
		a, err := loader.OpenAddresses(b.node.options())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		addr := netip.MustParseAddr("10.1.1.5")
		if err := errors.Join(a.PutTenant(maps.Tenant{Owner: lost, Addrs: []netip.Addr{addr}, Since: 1}),
			a.PutTenant(maps.Tenant{Owner: beside, Since: 1}),
			a.Claim(maps.Lease{Addr: addr, Owner: lost, State: maps.AddressHeld, Since: 1})); err != nil {
			t.Fatal(err)
		}
		c := &agent.Collector{Sandboxes: &agent.FakeSandboxes{IDs: []string{"alive"}}, Grace: time.Second, Log: b.Log,
			Attachments: &attachments{pinPath: b.PinPath, log: b.Log}}
		for round, want := range [][]maps.Owner{nil, {lost}, nil} {
			if got, err := c.Collect(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Errorf("round %d: collected %v, %v; want %v", round, got, err, want)
			}
		}
		l, err := a.Get(agent.NetworkName, addr)
		if err != nil || l.State != maps.AddressReleased {
			t.Errorf("its address: %+v, %v", l, err)
		}
		err = b.node.with(func(dp *loader.Datapath) error {
			_, err1 := dp.Maps.Ifaces.Get(1000)
			_, err2 := dp.Maps.Ifaces.Get(1001)
			_, err3 := dp.Maps.Ifaces.Get(1002)
			if !errors.Is(err1, maps.ErrNotFound) {
				t.Errorf("its row: %v", err1)
			}
			_, err4 := dp.Maps.Ifaces.Get(1003)
			return errors.Join(err2, err3, err4)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What the DaemonSet gives the agent's container is enough for all but loading the programs,
// which the init container does.
func TestPrivilegedAgentRights(t *testing.T) {
	onNode(t, func(b *bed) {
		load(b.node, b.Log)
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData // of this thread, which ends with the test
		for i, c := range []uint{unix.CAP_NET_ADMIN, unix.CAP_BPF} {
			sets[i].Effective = 1 << (c % 32)
		}
		for i := range sets {
			sets[i].Permitted = sets[i].Effective
		}
		if err := unix.Capset(&head, &sets[0]); err != nil {
			t.Fatal(err)
		}
		if b.node.loads = mayLoad(); b.node.loads {
			t.Error("thinks that it may load")
		}
		for range 2 {
			if err := b.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.seen(t); got != wantSeen {
			t.Errorf("with few rights:\n%s\nwant:\n%s", got, wantSeen)
		}
		if _, err := newLeases(b.PinPath).list(); err != nil {
			t.Errorf("leases: %v", err)
		}
		list := &attachments{pinPath: b.PinPath, log: b.Log}
		if _, err := list.List(); err != nil {
			t.Errorf("attachments: %v", err)
		}
		if err := list.Remove(t.Context(), maps.Owner{Network: agent.NetworkName, Container: "gone", IfName: "eth0"}); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
}

func TestPrivilegedAgentMetrics(t *testing.T) {
	onNode(t, func(b *bed) {
		if err := b.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h := b.Handler(newMetrics(&options{Config: b.Config}, b.Agent))
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, want := range []string{
			"culvert_loaded 1", `culvert_table_rows{table="remotes"} 4`, "culvert_agent_ready 1", `culvert_agent_sync_errors_total{step="routes"} 0`,
			`culvert_agent_ranges{kind="given"} 2`, `culvert_agent_remote_ranges{kind="tunnel"} 2`, `culvert_agent_free_addresses{family="IPv4"} 253`,
		} {
			if !strings.Contains(w.Body.String(), "\n"+want+"\n") {
				t.Errorf("%s is missing", want)
			}
		}
		if t.Failed() {
			t.Log(w.Body.String())
		}
	})
}

// After a boot the configuration of before is removed, and only then.
func TestPrivilegedInstallForgets(t *testing.T) {
	onNode(t, func(b *bed) {
		path := filepath.Join(b.ConfDir, agent.ConflistName)
		if err := b.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		run := func() string {
			t.Helper()
			var out bytes.Buffer
			if err := install(&out, io.Discard, b.PinPath, b.ConfDir); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		if out := run(); out != "" {
			t.Errorf("where all is in place: %s", out)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		b.PinPath = filepath.Join(netns.PinPath(t), "booted") // nothing there, as after a boot
		if out := run(); !strings.Contains(out, "removed "+agent.ConflistName) {
			t.Errorf("after a boot: %s", out)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if run(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("removed a second time: %v", err)
		}
	})
}

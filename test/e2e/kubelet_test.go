// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

var loopbackV4 = netip.MustParseAddr("127.0.0.1")

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// needCgroups skips a test where no cgroups v2 are mounted, as in a chroot: the hook for
// connect() is theirs.
func needCgroups(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mounts), " - cgroup2 ") {
		t.Skip("no cgroups v2 are mounted")
	}
}

// kubeletTable drops what kubelet drops: packets between the host's other addresses and
// 127/8 that were not translated.
const kubeletTable = `table ip kubelet {
	chain localnet { ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 ct status dnat accept
		ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 ct state != { established, related } drop; }
	chain in { type filter hook input priority 0; jump localnet; }
	chain out { type filter hook output priority 0; jump localnet; }
}`

// H2, as Kubernetes' conformance test calls it: on a node with kubelet's firewall, from a
// socket bound to an address of the node, to 127.0.0.1; two hostPorts of one number at
// two addresses are told apart. Another namespace's 127.0.0.1 is its own.
func TestPrivilegedH2Kubelet(t *testing.T) {
	t.Parallel()
	needCgroups(t)
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	up := node.Uplinks[0].V4
	node.MustRun(t, kubeletTable, "nft", "-f", "-")
	serve(t, node, netns.PodSpec{Name: "lo", Ports: netns.Both(8080, 80, "127.0.0.1")})
	serve(t, node, netns.PodSpec{Name: "up", Ports: netns.Both(8080, 80, up.String())})
	bound := func(to netip.Addr) netns.Call {
		call := call("tcp", to, 8080)
		call.From = netip.AddrPortFrom(up, 0)
		return call
	}
	ask(t, node.NS, bound(loopbackV4), want{server: "lo", remote: only(up)})
	ask(t, node.NS, bound(up), want{server: "up", remote: only(up)})
	ask(t, node.NS, call("tcp", loopbackV4, 8080), want{server: "lo"})

	stranger := netns.NewPeer(t, 7)
	stranger.IP(t, "addr add "+up.String()+"/32 dev lo")
	if got, err := stranger.Ask(bound(loopbackV4)); err == nil {
		t.Errorf("another namespace's 127.0.0.1:8080 answered: %+v", got)
	}
}

// The hook goes with the last hostPort on loopback.
func TestPrivilegedH2KubeletGone(t *testing.T) {
	t.Parallel()
	needCgroups(t)
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.MustRun(t, kubeletTable, "nft", "-f", "-")
	attached := func(name string, want bool) {
		t.Helper()
		if got := exists(filepath.Join(node.PinPath, "v1/links/cgroup_out")); got != want {
			t.Errorf("%s: from_socket is attached: %v", name, got)
		}
	}
	off := map[string]any{"hostPorts": map[string]any{"loopback": false}}
	serve(t, node, netns.PodSpec{Name: "off", Ports: netns.Both(8081, 80), Conf: off})
	attached("loopback off", false)
	pods := map[string]*netns.Pod{}
	for i, name := range []string{"a", "b"} {
		pods[name], _ = serve(t, node, netns.PodSpec{Name: name, Ports: netns.Both(8090+i, 80)})
		attached("ADD of "+name, true)
	}
	pods["a"].Del(t)
	attached("DEL of a", true)
	pods["b"].Del(t)
	attached("DEL of b", false)
}

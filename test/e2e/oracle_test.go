// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// oraclePod adds pods by the reference plugins: bridge, then portmap where there are
// ports.
func oraclePod(backend string) addPod {
	return func(t *testing.T, n *netns.Node, s netns.PodSpec) endpoint {
		t.Helper()
		ns := netns.New(t, s.Name)
		env := map[string]string{"CNI_CONTAINERID": s.Name, "CNI_NETNS": ns.Path(), "CNI_IFNAME": "eth0"}
		ipam := n.Conf()["ipam"]
		conf := map[string]any{
			"cniVersion": "1.0.0", "name": netns.Network, "type": "bridge", "bridge": "cni0",
			"isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false, "ipMasqBackend": backend, "ipam": ipam,
		}
		if masq, ok := s.Conf["ipMasq"]; ok {
			conf["ipMasq"] = masq
		}
		raw := oracleAdd(t, n, env, conf)
		if len(s.Ports) > 0 {
			raw = oracleAdd(t, n, env, map[string]any{
				"cniVersion": "1.0.0", "name": netns.Network, "type": "portmap", "backend": backend,
				"runtimeConfig": map[string]any{"portMappings": s.Ports}, "prevResult": raw,
			})
		}
		return endpoint{ns, addresses(t, raw)}
	}
}

// seeBridged has netfilter see what a bridge carries, as Kubernetes demands of nodes:
// without it, replies between two pods pass portmap by.
func seeBridged(t *testing.T, n *netns.Node) {
	t.Helper()
	for _, family := range []string{"iptables", "ip6tables"} {
		key := "net/bridge/bridge-nf-call-" + family
		if _, err := os.Stat("/proc/sys/" + key); err != nil {
			t.Skipf("the reference needs br_netfilter: %v", err)
		}
		n.Sysctl(t, key, "1")
	}
}

// oracleAdd runs one plugin's ADD, whose DEL runs when the test ends.
func oracleAdd(t *testing.T, n *netns.Node, env map[string]string, conf map[string]any) json.RawMessage {
	t.Helper()
	out, err := n.Exec("ADD", env, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conf := maps.Clone(conf)
		conf["prevResult"] = json.RawMessage(out)
		if _, err := n.Exec("DEL", env, conf); err != nil {
			t.Error(err)
		}
	})
	return out
}

func addresses(t *testing.T, raw json.RawMessage) func(family int) netip.Addr {
	t.Helper()
	var r netns.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatalf("decode result %q: %v", raw, err)
	}
	byFamily := map[int]netip.Addr{}
	for _, ip := range r.IPs {
		if a := ip.Address.Addr(); a.Is4() {
			byFamily[4] = a
		} else {
			byFamily[6] = a
		}
	}
	return func(family int) netip.Addr { return byFamily[family] }
}

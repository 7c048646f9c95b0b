// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os/exec"
)

// Chain is a conflist to measure.
type Chain struct {
	Name    string
	Backend string // of the reference plugins: "iptables", "nft"; empty: culvert
	PTP     bool   // the reference's ptp instead of its bridge
	Masq    bool   // masquerade what pods send outside
	OwnIPAM bool   // of culvert: culvert-ipam instead of host-local
}

// Missing is the command that the chain's plugins execute and that is not there.
func (c Chain) Missing() string {
	if c.Backend == "" {
		return ""
	}
	if _, err := exec.LookPath(c.Backend); err != nil {
		return c.Backend
	}
	return ""
}

// name of the network.
const name = "bench"

func (c Chain) ipam(dir string) string {
	kind := "host-local"
	if c.OwnIPAM {
		kind = "culvert-ipam" // which ignores dataDir
	}
	return fmt.Sprintf(`{"type": %q, "dataDir": %q, "ranges": [[{"subnet": "10.244.0.0/16"}], [{"subnet": "fd00:244::/64"}]],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}`, kind, dir+"/ipam")
}

func (c Chain) conflist(dir, pins string) string {
	ipam := c.ipam(dir)
	plugins := c.reference(ipam)
	if c.Backend == "" {
		plugins = fmt.Sprintf(`{"type": "culvert", "pinPath": %q, "ipam": %s, "ipMasq": %t,
			"capabilities": {"portMappings": true, "bandwidth": true}}`, pins, ipam, c.Masq)
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [%s]}`, name, plugins)
}

func (c Chain) reference(ipam string) string {
	backend := c.Backend
	if backend == "nft" {
		backend = "nftables"
	}
	main := `"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true`
	if c.PTP {
		main = `"type": "ptp"`
	}
	return fmt.Sprintf(`{%s, "ipMasq": %t, "ipMasqBackend": %q, "ipam": %s},
		{"type": "portmap", "backend": %q, "capabilities": {"portMappings": true}},
		{"type": "bandwidth", "capabilities": {"bandwidth": true}}`, main, c.Masq, backend, ipam, backend)
}

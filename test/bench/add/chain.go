// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
)

// chain is a conflist to measure.
type chain struct {
	name    string
	needs   string // a command that its plugins execute
	plugins func(ipam, pins string) string
}

// chains are culvert's first: the others are compared with it.
func chains() []chain {
	return []chain{
		{"culvert", "", func(ipam, pins string) string {
			return fmt.Sprintf(`{"type": "culvert", "pinPath": %q, "ipam": %s,
				"capabilities": {"portMappings": true, "bandwidth": true}}`, pins, ipam)
		}},
		{"bridge, portmap (nft), bandwidth", "nft", reference("nftables")},
		{"bridge, portmap (iptables), bandwidth", "iptables", reference("iptables")},
	}
}

func reference(backend string) func(string, string) string {
	return func(ipam, _ string) string {
		return fmt.Sprintf(`{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": %s},
			{"type": "portmap", "backend": %q, "capabilities": {"portMappings": true}},
			{"type": "bandwidth", "capabilities": {"bandwidth": true}}`, ipam, backend)
	}
}

func (c chain) missing() string {
	if c.needs == "" {
		return ""
	}
	if _, err := exec.LookPath(c.needs); err != nil {
		return c.needs
	}
	return ""
}

func (c chain) conflist(dir, pins string) string {
	ipam := fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.244.0.0/16"}], [{"subnet": "fd00:244::/64"}]]}`, dir+"/ipam")
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bench", "plugins": [%s]}`, c.plugins(ipam, pins))
}

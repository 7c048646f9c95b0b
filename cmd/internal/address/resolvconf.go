// SPDX-License-Identifier: Apache-2.0

package address

import (
	"bufio"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// readResolvConf reads a file as resolv.conf(5) has it; "" is none.
func readResolvConf(path string) (types.DNS, error) {
	var dns types.DNS
	if path == "" {
		return dns, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return dns, netconf.Bad("ipam.resolvConf", path, "cannot be read: "+err.Error())
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] { // a comment is none of these
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, words[1])
		case "domain":
			dns.Domain = words[1]
		case "search":
			dns.Search = append(dns.Search, words[1:]...)
		case "options":
			dns.Options = append(dns.Options, words[1:]...)
		}
	}
	if err := lines.Err(); err != nil {
		return dns, netconf.Bad("ipam.resolvConf", path, "cannot be read: "+err.Error())
	}
	return dns, nil
}

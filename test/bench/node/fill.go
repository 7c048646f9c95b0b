// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// fillPort is the first of the hostPorts that nobody calls.
const fillPort = 20000

// Fill makes hostPorts that nobody calls. culvert's are made by ADD, 1,000 a pod. 5,000
// ADDs of the reference plugins would take an hour, so one is made, of a pod with one
// hostPort, and the rest are copies of the rules of both families that it left: portmap's
// and those of the masquerade.
func (n *Node) Fill(ctx context.Context, count int) error {
	if count == 0 {
		return nil
	}
	if n.Chain.Backend == "" {
		const each = 1000
		for i := 0; i < count; i += each {
			if _, err := n.AddPod(ctx, Ports(fillPort+i, min(each, count-i), "tcp")); err != nil {
				return err
			}
		}
		return nil
	}
	model, err := n.AddPod(ctx, Ports(fillPort, 1, "tcp"))
	if err != nil {
		return err
	}
	if n.Chain.Backend == "nft" {
		return n.fillNFT(model, count)
	}
	return errors.Join(n.fillIPTables("iptables", model.V4.String(), count), n.fillIPTables("ip6tables", model.V6.String(), count))
}

// AddPod makes a pod with hostPorts.
func (n *Node) AddPod(ctx context.Context, mappings []PortMapping) (*Pod, error) {
	p, err := n.NewPod(map[string]any{"portMappings": mappings})
	if err != nil {
		return nil, err
	}
	return p, p.Add(ctx)
}

// Port is what hostPorts of Ports lead to.
const Port = 80

// Ports are so many hostPorts from first on, for each protocol.
func Ports(first, count int, protocols ...string) []PortMapping {
	var m []PortMapping
	for i := range count {
		for _, p := range protocols {
			m = append(m, PortMapping{HostPort: first + i, ContainerPort: Port, Protocol: p})
		}
	}
	return m
}

func (n *Node) fillIPTables(command, model string, count int) error {
	rules, err := n.Run("", command+"-save", "-t", "nat")
	if err != nil {
		return err
	}
	in, err := copyIPTables(rules, model, count)
	if err != nil {
		return err
	}
	_, err = n.Run(in, command+"-restore", "--noflush")
	return err
}

// A pod's chains are named after one hash, cut to two lengths.
var podChain = regexp.MustCompile(`CNI-DN-([0-9a-f]{8,})`)

// copyIPTables makes of what iptables-save printed, in which the model's rules are, the
// input of iptables-restore that adds count-1 copies.
func copyIPTables(rules, model string, count int) (string, error) {
	found := podChain.FindStringSubmatch(rules)
	if found == nil {
		return "", errors.New("find the pod's chain of portmap in: " + rules)
	}
	hash := found[1]
	var chains, lines []string
	for l := range strings.Lines(rules) {
		switch {
		case !strings.Contains(l, hash):
		case strings.HasPrefix(l, ":"):
			chains = append(chains, l)
		default:
			lines = append(lines, l)
		}
	}
	var b strings.Builder
	b.WriteString("*nat\n")
	for _, block := range [][]string{chains, lines} {
		for i := 1; i < count; i++ {
			other := fmt.Sprintf("%s%08x", hash[:len(hash)-8], i)
			for _, l := range block {
				b.WriteString(copyRule(strings.ReplaceAll(l, hash, other), model, i))
			}
		}
	}
	b.WriteString("COMMIT\n")
	return b.String(), nil
}

func (n *Node) fillNFT(model *Pod, count int) error {
	rules, err := n.Run("", "nft", "list", "ruleset")
	if err != nil {
		return err
	}
	for _, addr := range []netip.Addr{model.V4, model.V6} {
		in, err := copyNFT(rules, addr.String(), count)
		if err == nil {
			_, err = n.Run(in, "nft", "-f", "-")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyNFT makes of the ruleset that nft printed, in which the model's rules are, the
// commands that add count-1 copies.
func copyNFT(ruleset, model string, count int) (string, error) {
	address := regexp.MustCompile(`\b` + regexp.QuoteMeta(model) + `\b`)
	var table, chain string
	var rules []string
	for l := range strings.Lines(ruleset) {
		l = strings.TrimSpace(l)
		if name, ok := strings.CutPrefix(l, "table "); ok {
			table = strings.TrimSuffix(name, " {")
		} else if name, ok := strings.CutPrefix(l, "chain "); ok {
			chain = strings.TrimSuffix(name, " {")
		} else if address.MatchString(l) {
			rules = append(rules, fmt.Sprintf("add rule %s %s %s\n", table, chain, l))
		}
	}
	if len(rules) == 0 {
		return "", fmt.Errorf("find the rules of %s in %s", model, ruleset)
	}
	var b strings.Builder
	for i := 1; i < count; i++ {
		for _, r := range rules {
			b.WriteString(copyRule(r, model, i))
		}
	}
	return b.String(), nil
}

// copyRule gives the i-th copy an address and a hostPort of its own.
func copyRule(rule, model string, i int) string {
	other := fmt.Sprintf("10.244.%d.%d", 128+i/256, i%256)
	if strings.Contains(model, ":") {
		other = fmt.Sprintf("fd00:244::1:%x", i)
	}
	rule = strings.ReplaceAll(rule, model, other)
	return strings.ReplaceAll(rule, fmt.Sprint(fillPort), fmt.Sprint(fillPort+i))
}

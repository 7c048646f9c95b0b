// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/node"
)

// fill makes hostPorts that nobody calls. culvert's are made by ADD, 1,000 a pod. 5,000
// ADDs of the reference plugins would take an hour, so one is made, of a pod with one
// hostPort, and the rest are copies of the IPv4 rules that it left: portmap's and those
// of the bridge's masquerade.
func fill(ctx context.Context, n *node.Node, count int) error {
	if count == 0 {
		return nil
	}
	if n.Chain.Backend == "" {
		const each = 1000
		for i := 0; i < count; i += each {
			if _, err := addPod(ctx, n, ports(fillPort+i, min(each, count-i), "tcp")); err != nil {
				return err
			}
		}
		return nil
	}
	model, err := addPod(ctx, n, ports(fillPort, 1, "tcp"))
	if err != nil {
		return err
	}
	if n.Chain.Backend == "iptables" {
		return fillIPTables(n, model.V4.String(), count)
	}
	return fillNFT(n, model.V4.String(), count)
}

func fillIPTables(n *node.Node, model string, count int) error {
	rules, err := n.Run("", "iptables-save", "-t", "nat")
	if err != nil {
		return err
	}
	in, err := copyIPTables(rules, model, count)
	if err != nil {
		return err
	}
	_, err = n.Run(in, "iptables-restore", "--noflush")
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

func fillNFT(n *node.Node, model string, count int) error {
	rules, err := n.Run("", "nft", "list", "ruleset")
	if err != nil {
		return err
	}
	in, err := copyNFT(rules, model, count)
	if err != nil {
		return err
	}
	_, err = n.Run(in, "nft", "-f", "-")
	return err
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
	rule = strings.ReplaceAll(rule, model, fmt.Sprintf("10.244.%d.%d", 128+i/256, i%256))
	return strings.ReplaceAll(rule, fmt.Sprint(fillPort), fmt.Sprint(fillPort+i))
}

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Chain gives the plugins that come before culvert in a list, in their order, with that
// section ipam. The first of them makes the interface.
type Chain func(n *Node, ipam any) []map[string]any

// Chains are the ways to make a pod that culvert is chained behind.
func Chains() map[string]Chain {
	return map[string]Chain{"bridge": AfterBridge, "ptp": AfterPtP, "routed": AfterRouted}
}

// Bridge is the name of the bridge that AfterBridge's plugin makes.
const Bridge = "cni0"

// AfterBridge is the reference plugin bridge, whose bridge is the pods' gateway.
func AfterBridge(n *Node, ipam any) []map[string]any {
	return []map[string]any{n.foreign("bridge", ipam, map[string]any{
		"bridge": Bridge, "isGateway": true, "isDefaultGateway": true, "forceAddress": true,
	})}
}

// AfterMasqueradingBridge is a bridge that masquerades what leaves the pods' subnet.
func AfterMasqueradingBridge(n *Node, ipam any) []map[string]any {
	list := AfterBridge(n, ipam)
	list[0]["ipMasq"], list[0]["ipMasqBackend"] = true, "nftables"
	return list
}

// AfterPtP is the reference plugin ptp: a routed veth whose node's end has an address. It
// takes its default routes from the IPAM plugin.
func AfterPtP(n *Node, ipam any) []map[string]any {
	if section, ok := ipam.(map[string]any); ok {
		section = maps.Clone(section)
		section["routes"] = []map[string]any{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}}
		ipam = section
	}
	return []map[string]any{n.foreign("ptp", ipam, nil)}
}

// AfterRouted is test/routed: a veth as plugins with a policy engine make it.
func AfterRouted(n *Node, ipam any) []map[string]any {
	return []map[string]any{n.foreign("routed", ipam, nil)}
}

func (n *Node) foreign(kind string, ipam any, keys map[string]any) map[string]any {
	conf := map[string]any{"cniVersion": "1.1.0", "name": Network, "type": kind, "ipam": ipam}
	maps.Copy(conf, keys)
	return conf
}

// ExecList runs ADD of the plugins in order, as libcni does: each gets the result of the
// one before. After an error those that came before are as they were.
func (n *Node) ExecList(env map[string]string, list []map[string]any) ([]byte, error) {
	var out []byte
	for _, conf := range list {
		if out != nil {
			conf = withResult(conf, out)
		}
		var err error
		if out, err = n.Exec("ADD", env, conf); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// list is the whole list of plugins.
func (p *Pod) list() []map[string]any { return append(slices.Clone(p.before), p.conf) }

// delBefore runs DEL of the plugins before culvert, the last one first.
func (p *Pod) delBefore(extra map[string]string) error {
	env := p.env()
	maps.Copy(env, extra)
	var errs []error
	for _, conf := range slices.Backward(p.before) {
		_, err := p.Node.Exec("DEL", env, withResult(conf, p.raw))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// withResult gives a configuration the result of ADD, if there is one.
func withResult(conf map[string]any, raw json.RawMessage) map[string]any {
	conf = maps.Clone(conf)
	if raw != nil {
		conf["prevResult"] = raw
	}
	return conf
}

// told is a device as the kernel tells of it, where the result does not.
func told(ns *NS, dev, sandbox string) Interface {
	var links []struct {
		Name string `json:"ifname"`
		MAC  string `json:"address"`
		MTU  int    `json:"mtu"`
	}
	out, err := ns.Run("", "ip", "-json", "link", "show", "dev", dev)
	if err != nil || json.Unmarshal([]byte(out), &links) != nil || len(links) != 1 {
		return Interface{}
	}
	return Interface{Name: links[0].Name, MAC: links[0].MAC, MTU: links[0].MTU, Sandbox: sandbox}
}

// TryDelOurs is DEL of culvert alone: the interface stays, which is the other plugin's.
func (p *Pod) TryDelOurs() error {
	_, err := p.Node.Exec("DEL", p.env(), withResult(p.conf, p.raw))
	return err
}

// AddOurs is ADD of culvert alone, for the interface that is there, with keys over the
// pod's configuration.
func (p *Pod) AddOurs(keys map[string]any) ([]byte, error) {
	conf := withResult(p.conf, p.raw)
	maps.Copy(conf, keys)
	maps.DeleteFunc(conf, func(_ string, v any) bool { return v == nil })
	return p.Node.Exec("ADD", p.env(), conf)
}

// TryDelBefore is DEL of the other plugins alone.
func (p *Pod) TryDelBefore() error { return p.delBefore(nil) }

// DelOursBare is TryDelOurs without prevResult, runtimeConfig and namespace.
func (p *Pod) DelOursBare() error {
	conf := maps.Clone(p.conf)
	delete(conf, "runtimeConfig")
	env := p.env()
	env["CNI_NETNS"] = ""
	_, err := p.Node.Exec("DEL", env, conf)
	return err
}

// Raw is the result as the last plugin printed it.
func (p *Pod) Raw() json.RawMessage { return p.raw }

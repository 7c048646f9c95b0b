// SPDX-License-Identifier: Apache-2.0

package netns

import "maps"

// Unfinished is the pod of an ADD that has not returned, or is not meant to: DEL works on
// it, CHECK does not.
func (n *Node) Unfinished(s PodSpec) *Pod { return n.attachment(s) }

// On is the same attachment on another view of its node: one that has other binaries.
func (p *Pod) On(n *Node) *Pod {
	return &Pod{
		NS: p.NS, Node: n, ID: p.ID, IfName: p.IfName, Result: p.Result, V4: p.V4, V6: p.V6,
		Host: p.Host, Inside: p.Inside, HostPort: p.HostPort, conf: maps.Clone(p.conf), before: p.before, raw: p.raw,
	}
}

// Attached is a pod as a runtime's list of valid attachments names it.
func (p *Pod) Attached() map[string]any {
	return map[string]any{"containerID": p.ID, "ifname": p.IfName}
}

// GC runs GC with these attachments as the valid ones.
func (n *Node) GC(conf map[string]any, valid ...*Pod) error {
	list := []map[string]any{}
	for _, p := range valid {
		list = append(list, p.Attached())
	}
	c := maps.Clone(conf)
	c["cni.dev/valid-attachments"] = list
	_, err := n.Exec("GC", nil, c)
	return err
}

// Ours is a verb of culvert alone, for a chained pod whose interface is there.
func (p *Pod) Ours(verb string) error {
	_, err := p.Node.Exec(verb, p.env(), withResult(p.conf, p.raw))
	return err
}

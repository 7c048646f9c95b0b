// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/test/netns"
)

// PortMapping is one row of the capability portMappings.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Pod is a network namespace, closed with the node at the latest, and what the chain
// makes of it.
type Pod struct {
	*netns.NS
	ID     string
	V4, V6 netip.Addr // after Add

	node *Node
	conf *libcni.RuntimeConf
}

// NewPod makes the namespace. Capabilities are those of the runtime's configuration.
func (n *Node) NewPod(capabilities map[string]any) (*Pod, error) {
	ns, err := netns.TryNew("a pod of " + n.Chain.Name)
	if err != nil {
		return nil, err
	}
	return n.PodIn(ns, capabilities), nil
}

// PodIn is a pod in a namespace that there is, which is closed with the node too.
func (n *Node) PodIn(ns *netns.NS, capabilities map[string]any) *Pod {
	id := fmt.Sprintf("pod%d", len(n.pods)+1)
	conf := &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "eth0", CapabilityArgs: capabilities}
	p := &Pod{NS: ns, ID: id, node: n, conf: conf}
	n.pods = append(n.pods, p)
	return p
}

// Add is ADD.
func (p *Pod) Add(ctx context.Context) error {
	return p.verb("ADD", func() error {
		r, err := p.node.cni.AddNetworkList(ctx, p.node.list, p.conf)
		if err != nil {
			return err
		}
		result, err := current.NewResultFromResult(r)
		if err != nil {
			return err
		}
		for _, ip := range result.IPs {
			if a, ok := netip.AddrFromSlice(ip.Address.IP); ok && a.Unmap().Is4() {
				p.V4 = a.Unmap()
			} else if ok {
				p.V6 = a
			}
		}
		if !p.V4.IsValid() || !p.V6.IsValid() {
			return errors.New("no address of each family in the result")
		}
		return nil
	})
}

// Check is CHECK.
func (p *Pod) Check(ctx context.Context) error {
	return p.verb("CHECK", func() error { return p.node.cni.CheckNetworkList(ctx, p.node.list, p.conf) })
}

// Del is DEL.
func (p *Pod) Del(ctx context.Context) error {
	return p.verb("DEL", func() error { return p.node.cni.DelNetworkList(ctx, p.node.list, p.conf) })
}

// verb runs f in the node's namespace, where the plugins that it starts are too.
func (p *Pod) verb(name string, f func() error) error {
	if err := p.node.Do(f); err != nil {
		return fmt.Errorf("%s %s: %w", name, p.ID, err)
	}
	return nil
}

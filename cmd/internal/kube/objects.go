// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// What the agent keeps of the objects that it watches.
type (
	node struct {
		name   string
		uid    types.UID
		labels labels.Set
		ranges []netip.Prefix // spec.podCIDRs
		addrs  []netip.Addr
	}
	pod struct {
		namespace, name string
		addrs           []netip.Addr
		pools           []string // by its own annotation; nil: it has none
		done            bool     // its addresses are not its any more
		created         time.Time
	}
	namespace struct {
		name  string
		pools []string
	}
	pool struct {
		name     string
		prefix   netip.Prefix
		size     int // of a block's prefix
		selector labels.Selector
		disabled bool
		reserved []netip.Prefix
		wrong    string // why it cannot be used
	}
	block struct {
		prefix netip.Prefix
		object *v1alpha1.IPBlock // the status is there only if the block is this node's
		via    []netip.Addr
	}
)

func (b block) node() string { return b.object.Spec.Node }

// BlockName is the name that the block of a range has; the API server has one object of a
// name, so that no two nodes have one range.
func BlockName(p netip.Prefix) string {
	name := strings.NewReplacer(".", "-", ":", "-").Replace(p.Addr().String())
	if strings.HasPrefix(name, "-") {
		name = "0" + name // ::1
	}
	return fmt.Sprintf("%s-%d", name, p.Bits())
}

// parsePrefix reads a range without host bits.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, err
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s is an IPv4 range written as an IPv6 one", s)
	case p.Masked() != p:
		return p, fmt.Errorf("%s has host bits, its own address is %s", s, p.Masked().Addr())
	}
	return p, nil
}

// single is the range of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// parseNode keeps the node's addresses inside the cluster; those outside if it has no others.
func parseNode(obj any) (node, bool) {
	o := obj.(*corev1.Node)
	n := node{name: o.Name, uid: o.UID, labels: o.Labels}
	for _, s := range o.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			n.ranges = append(n.ranges, p.Masked())
		}
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range o.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err == nil && a.Type == kind && !slices.Contains(n.addrs, addr) {
				n.addrs = append(n.addrs, addr.Unmap())
			}
		}
		if len(n.addrs) > 0 {
			break
		}
	}
	return n, true
}

func sameNode(a, b node) bool {
	return a.uid == b.uid && maps.Equal(a.labels, b.labels) && slices.Equal(a.ranges, b.ranges) && slices.Equal(a.addrs, b.addrs)
}

// parsePod leaves out pods that have the node's own network.
func parsePod(obj any) (pod, bool) {
	o := obj.(*corev1.Pod)
	p := pod{namespace: o.Namespace, name: o.Name, created: o.CreationTimestamp.Time,
		done:  o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		addrs: podAddrs(o)}
	if value, ok := o.Annotations[netconf.PoolsAnnotation]; ok {
		p.pools = poolNames(value)
	}
	return p, !o.Spec.HostNetwork
}

func podAddrs(o *corev1.Pod) (addrs []netip.Addr) {
	for _, ip := range o.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

func samePod(a, b pod) bool {
	return slices.Equal(a.addrs, b.addrs) && slices.Equal(a.pools, b.pools) && a.done == b.done && a.created.Equal(b.created)
}

// parseNamespace keeps those that name pools.
func parseNamespace(obj any) (namespace, bool) {
	o := obj.(*corev1.Namespace)
	n := namespace{o.Name, poolNames(o.Annotations[netconf.PoolsAnnotation])}
	return n, len(n.pools) > 0
}

func sameNamespace(a, b namespace) bool { return slices.Equal(a.pools, b.pools) }

// poolNames reads the annotation. What cannot be read is taken for a name: no pool has it, which
// is told.
func poolNames(value string) []string {
	names, err := netconf.PoolNames(value)
	if err != nil {
		return []string{value}
	}
	return names
}

// parseBlock leaves out what is no block: one whose name is not that of its range would let
// two nodes have one range.
func parseBlock(self string) func(obj any) (block, bool) {
	return func(obj any) (block, bool) {
		o := obj.(*v1alpha1.IPBlock)
		prefix, err := parsePrefix(o.Spec.CIDR)
		if err != nil || o.Name != BlockName(prefix) {
			return block{}, false
		}
		b := block{prefix: prefix, object: o}
		for _, s := range o.Spec.Via {
			if a, err := netip.ParseAddr(s); err == nil {
				b.via = append(b.via, a.Unmap())
			}
		}
		if o.Spec.Node != self {
			kept := &v1alpha1.IPBlock{Spec: o.Spec}
			kept.Name, kept.UID, kept.ResourceVersion = o.Name, o.UID, o.ResourceVersion
			b.object = kept
		}
		return b, true
	}
}

// sameBlock does not look at the status, which only the node itself writes.
func sameBlock(a, b block) bool {
	return a.object.UID == b.object.UID && a.node() == b.node() && a.object.Spec.Pool == b.object.Spec.Pool &&
		slices.Equal(a.via, b.via)
}

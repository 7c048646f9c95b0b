// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// ErrAmiss is the kind of what Inspect finds: pods start all the same.
var ErrAmiss = errors.New("something is amiss on the node")

const (
	reconcileIt = "run culvertctl reconcile"
	nextPod     = "the next pod's start repairs it, or culvertctl reconcile"
)

// inspect is one look at the node.
type inspect struct {
	*Deps
	rows []maps.Iface // of pods that live
	list []loader.Fault
}

func (n *inspect) amiss(remedy, format string, a ...any) {
	n.list = append(n.list, loader.Fault{Kind: ErrAmiss, What: fmt.Sprintf(format, a...), Remedy: remedy})
}

// Inspect says what is amiss on the node and, with pods, on the pods that live, whose
// number its cost grows with. It changes nothing; what keeps a pod from starting, and what
// is to be said of the programs, is loader.Inspect's. Datapath may be nil.
func Inspect(d *Deps, pods bool) ([]loader.Fault, error) {
	n := &inspect{Deps: d}
	if err := n.leftOut(); err != nil {
		return nil, err
	}
	if d.Datapath == nil {
		return n.list, n.lost()
	}
	rows, err := maps.Collect(d.Datapath.Maps.Ifaces.All())
	if err != nil {
		return nil, err
	}
	for _, i := range rows {
		if len(i.Addrs) > 0 && (!pods || d.alive(i)) {
			n.rows = append(n.rows, i)
		}
	}
	parts := []func() error{n.uplinks, n.hostports, n.forwarding}
	if pods {
		parts = append(parts, n.tunnels, n.strangers, n.pods)
	}
	for _, part := range parts {
		if err := part(); err != nil {
			return n.list, err
		}
	}
	return n.list, nil
}

// leftOut are devices that would be uplinks but for their type.
func (n *inspect) leftOut() error {
	u, err := n.Node.Uplinks(nil, IsHostName)
	for _, l := range u.LeftOut {
		n.amiss("nothing is to be done if no hostPort has to answer there", "device %s (%s) is no uplink, as it has no Ethernet header: hostPorts do not answer on it, and nothing that leaves by it is masqueraded by culvert", l.Name, l.Kind)
	}
	return err
}

// lost looks for pods of a datapath that is not pinned.
func (n *inspect) lost() error {
	filters, err := n.Node.ListFilters()
	if err != nil {
		return err
	}
	devices := map[int]bool{}
	for _, f := range filters {
		if loader.IsFilterOf(f, n.PinPath) {
			devices[f.Ifindex] = true
		}
	}
	if len(devices) > 0 {
		n.amiss(nextPod, "the pins under %s are gone while programs run on %d devices: the tables are still in the kernel", n.PinPath, len(devices))
		return nil
	}
	return n.strangers()
}

// strangers are pods that no row tells of.
func (n *inspect) strangers() error {
	var links []netdev.Link
	var err error
	if n.Datapath == nil {
		links, err = n.Node.LinksNamed(IsHostName)
	} else {
		links, err = n.strangeVeths()
	}
	var names []string
	for _, l := range links {
		if _, ok := readWitness(l); ok && l.Up {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 {
		n.amiss(reconcileIt, "no row tells of the pods behind %s", strings.Join(names, ", "))
	}
	return err
}

// uplinks looks whether what the networks want carries the programs.
func (n *inspect) uplinks() error {
	if len(n.rows) == 0 {
		return nil
	}
	wanted, err := n.wantedUplinks()
	if err != nil {
		return err
	}
	for _, index := range wanted {
		l, err := n.Node.Link(index)
		if err != nil {
			continue // gone meanwhile
		}
		if err := n.Datapath.CheckUplink(index); err != nil {
			n.amiss(nextPod, "uplink %s lacks the programs, so hostPorts do not answer there", l.Name)
		}
	}
	if len(wanted) == 0 {
		n.amiss("set an address or a default route, or the key uplinks", "the node has no uplink: hostPorts answer the node and its pods alone")
	}
	return nil
}

// hostports looks for what the node's own way to hostPorts needs.
func (n *inspect) hostports() error {
	live := map[uint64]bool{}
	for _, i := range n.rows {
		live[i.Generation] = true
	}
	var any, loopback, v4, v6 bool
	for row, err := range n.Datapath.Maps.Hostports.All() {
		if err != nil {
			return err
		}
		if live[row.Generation] {
			any, loopback = true, loopback || row.Loopback
			v4, v6 = v4 || row.Pod4.IsValid(), v6 || row.Pod6.IsValid()
		}
	}
	if !any {
		return nil
	}
	if n.Datapath.CheckHost() != nil {
		n.amiss(reconcileIt, "lo lacks the program for the node's own connections to hostPorts")
	}
	for _, s := range []netdev.Sysctl{acceptLocal, routeLocalnet} {
		if now, err := s.Get(); v4 && err == nil && now != s.Value && (s != routeLocalnet || loopback) {
			n.amiss(reconcileIt, "sysctl %s is %s, so the node's own IPv4 connections to hostPorts fail", s.Path, now)
		}
	}
	return n.unreachable(v4, v6)
}

func (n *inspect) unreachable(v4, v6 bool) error {
	lacking, err := n.lacksDefault(v4, v6)
	for _, family := range lacking {
		n.amiss(reconcileIt, "IPv%d has neither a default route nor culvert's unreachable one, so every address counts as the node's own where a hostPort's number is called", family)
	}
	return err
}

// forwarding names the devices whose packets the kernel does not forward: the FIB, asked by
// the programs, says so too (FWD_DISABLED), and they leave these packets to the stack.
func (n *inspect) forwarding() error {
	v4, v6 := families(n.rows)
	on, err := n.Datapath.Uplinks()
	if err != nil {
		return err
	}
	for _, index := range on {
		l, err := n.Node.Link(index)
		if err != nil {
			continue
		}
		for family, has := range map[bool]bool{false: v4, true: v6} {
			s := netdev.ForwardingOf(l.Name, family)
			if now, err := s.Get(); has && err == nil && now == "0" {
				n.amiss(fmt.Sprintf("set sysctl %s to 1", s.Path), "forwarding is off on %s (%s), so what comes in there does not reach pods", l.Name, map[bool]string{false: "IPv4", true: "IPv6"}[family])
			}
		}
	}
	return nil
}

// pods looks at what each pod that lives has of programs and shapers.
func (n *inspect) pods() error {
	for _, i := range n.rows {
		if err := n.Datapath.CheckPod(i.Ifindex); err != nil {
			n.amiss(reconcileIt, "%s of %s lacks the programs: it is neither limited nor held to its addresses, and its hostPorts do not answer everybody", i.HostIfName, i.Owner)
		}
		for _, dir := range []maps.Direction{maps.Ingress, maps.Egress} {
			if n.lacksShaper(i, dir) {
				n.amiss(reconcileIt, "the %s shaper of %s is gone or another one", dir, i.Owner)
			}
		}
	}
	return nil
}

// lacksShaper is false also where it cannot be known: the pod goes.
func (n *inspect) lacksShaper(i maps.Iface, dir maps.Direction) bool {
	row, err := n.Datapath.Maps.Limits.Get(i.Ifindex, dir)
	if err != nil || row.Rate == 0 {
		return false
	}
	p, err := openLive(n.Deps, i)
	if err != nil {
		return false
	}
	defer p.close()
	now, err := p.shaper(dir)
	return err == nil && (!now.Ours || sameLimit(row, now) != nil)
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// A pod's veth tells by its alias whose it is, its host route by our protocol number that
// the pod is complete, and its neighbours which MAC address it has: rows of a pod that no
// table tells of, and that no program leads to either, are made of these. What they do not
// tell, hostPorts, comes back with the pod's next start.

// witness is a row of ifaces as the alias of a veth: "culvert NETWORK CONTAINER IFNAME FLAGS
// NETNS". The kernel takes 255 bytes.
type witness struct{ maps.Iface }

const (
	witnessName  = "culvert"
	longestAlias = 255
)

// String is "" for what does not fit.
func (w witness) String() string {
	flags := strconv.FormatUint(uint64(w.Flags&(maps.PodMasquerade|maps.PodSourceCheck)), 16)
	s := strings.Join([]string{witnessName, w.Network, w.Container, w.IfName, flags, w.NetnsPath}, " ")
	if len(s) > longestAlias {
		return ""
	}
	return s
}

// readWitness reads the alias of a veth; ok is false for one that does not tell whose it is.
func readWitness(l netdev.Link) (i maps.Iface, ok bool) {
	fields := strings.SplitN(l.Alias, " ", 6)
	if len(fields) != 6 || fields[0] != witnessName {
		return i, false
	}
	flags, err := strconv.ParseUint(fields[4], 16, 32)
	i = maps.Iface{
		Ifindex: l.Index, HostIfName: l.Name, MTU: l.MTU, NetnsPath: fields[5], Flags: maps.PodFlags(flags),
		Owner: maps.Owner{Network: fields[1], Container: fields[2], IfName: fields[3]},
	}
	return i, err == nil && HostName(i.Owner) == l.Name
}

// Witnesses are the pods that the node's own devices and routes tell of: the alias of the veth
// says whose it is, and its host routes which addresses it has. One whose namespace
// cannot be opened has no Netns.
func Witnesses(node *netdev.Handle) ([]maps.Iface, error) {
	links, err := node.LinksNamed(IsHostName)
	if err != nil || len(links) == 0 {
		return nil, err
	}
	routes, err := node.OwnRoutes()
	if err != nil {
		return nil, err
	}
	addrs := map[int][]netip.Addr{}
	for _, r := range routes {
		if r.Dst.IsSingleIP() {
			addrs[r.Index] = append(addrs[r.Index], r.Dst.Addr())
		}
	}
	var pods []maps.Iface
	for _, l := range links {
		i, ok := readWitness(l)
		if i.Addrs = addrs[l.Index]; !ok || l.Kind != "veth" || len(i.Addrs) == 0 {
			continue
		}
		if ns, err := netdev.OpenNamespace(i.NetnsPath); err == nil {
			i.Netns = ns.Inode
			ns.Close()
		}
		pods = append(pods, i)
	}
	return pods, nil
}

// Rebuild writes the rows of pods that live and that no row tells of. It gives a sentence
// for each, and goes on after an error.
func (d *Deps) Rebuild() (done []string, err error) {
	links, err := d.strangeVeths()
	if err != nil || len(links) == 0 {
		return nil, err
	}
	unlock, err := d.Datapath.Lock() // of two who rebuild, one does
	if err != nil {
		return nil, err
	}
	defer unlock()
	if links, err = d.strangeVeths(); err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range links {
		what, err := d.rebuild(l)
		if err != nil {
			errs = append(errs, fmt.Errorf("rebuild rows of %s: %w", l.Name, err))
		} else if what != "" {
			d.Log.Warn("rebuilt rows", "device", l.Name, "what", what)
			done = append(done, what)
		}
	}
	return done, errors.Join(errs...)
}

// strangeVeths are veths of ours that no row tells of.
func (d *Deps) strangeVeths() ([]netdev.Link, error) {
	links, err := d.Node.LinksNamed(IsHostName)
	return slices.DeleteFunc(links, func(l netdev.Link) bool {
		row, err := d.Datapath.Maps.Ifaces.Get(l.Index)
		return l.Kind != "veth" || err == nil && row.HostIfName == l.Name || err != nil && !errors.Is(err, maps.ErrNotFound)
	}), err
}

// rebuild gives "" for a veth that is no pod's: its ADD was killed before the routes.
func (d *Deps) rebuild(l netdev.Link) (string, error) {
	routes, err := d.Node.Routes(l.Index)
	if err != nil {
		return "", err
	}
	i, ok := readWitness(l)
	for _, r := range routes {
		if r.Protocol == netdev.RouteProtocol && r.Dst.IsSingleIP() {
			i.Addrs = append(i.Addrs, r.Dst.Addr())
		}
	}
	switch {
	case len(i.Addrs) == 0:
		return "", nil
	case !ok:
		return fmt.Sprintf("pod behind %s stays without rows: the device's alias does not tell whose it is; start the pod anew", l.Name), nil
	}
	ns, err := netdev.OpenNamespace(i.NetnsPath)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, netdev.ErrNotNamespace) {
		return "", nil // dead: GC and DEL know its veth by its name
	}
	if err != nil {
		return "", err
	}
	defer ns.Close()
	i.Netns = ns.Inode
	return d.rebuildRows(i, l, ns)
}

func (d *Deps) rebuildRows(i maps.Iface, l netdev.Link, ns *netdev.Namespace) (string, error) {
	pod, err := netdev.OpenIn(ns)
	if err != nil {
		return "", err
	}
	defer pod.Close()
	inside, err := pod.LinkNamed(i.IfName)
	if err != nil || inside.PeerIndex != l.Index || l.PeerIndex != inside.Index {
		return "", nil // another pod's namespace by now
	}
	if i.Generation, err = generation(); err != nil {
		return "", err
	}
	limits, err := d.readLimits(&i, pod, inside.Index)
	if err != nil {
		return "", err
	}
	first := i
	first.Addrs = nil // as ADD does: complete when all else is
	m := d.Datapath.Maps
	errs := []error{m.Ifaces.Put(first)}
	for _, row := range limits {
		errs = append(errs, m.Limits.Put(row))
	}
	for _, addr := range i.Addrs {
		errs = append(errs, m.Pods.Put(podRow(i, addr, inside.MAC, l.MAC)))
	}
	errs = append(errs, m.Ifaces.Put(i), d.Datapath.AttachPod(l.Index))
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return fmt.Sprintf("rebuilt the rows of %s from its device, its limits too: its hostPorts come back with its next start, its network's ranges with the next ADD", i.Owner), nil
}

func podRow(i maps.Iface, addr netip.Addr, mac, hostMAC net.HardwareAddr) maps.Pod {
	return maps.Pod{
		Addr: addr, Generation: i.Generation, Ifindex: i.Ifindex, Flags: i.Flags &^ maps.PodOwnClsact,
		Netns: i.Netns, MTU: i.MTU, MAC: mac, HostMAC: hostMAC,
	}
}

// readLimits makes the rows of the shapers that stand on both ends, and sets the flags.
func (d *Deps) readLimits(i *maps.Iface, pod *netdev.Handle, podIndex int) ([]maps.Limit, error) {
	var rows []maps.Limit
	for _, at := range []struct {
		h     *netdev.Handle
		index int
		dir   maps.Direction
		flag  maps.PodFlags
	}{{d.Node, i.Ifindex, maps.Ingress, maps.PodLimitIngress}, {pod, podIndex, maps.Egress, maps.PodLimitEgress}} {
		now, err := at.h.ReadShaper(at.index)
		if err != nil {
			return nil, err
		}
		if !now.Ours || now.Rate == 0 {
			continue
		}
		rate, kind := Rate{Rate: now.Rate * 8}, kindOf(now.Flows)
		rows = append(rows, rate.limit(rate.shaper(i.MTU, kind), i.Ifindex, at.dir, kind))
		i.Flags |= at.flag
	}
	return rows, nil
}

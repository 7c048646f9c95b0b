// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// setup is one attachment in the making. Each step leaves on undo what takes it back.
type setup struct {
	*Deps
	Spec
	undo undoStack

	iface      maps.Iface
	link       netdev.Link      // the node's end
	kept       maps.PodFlags    // of a chained pod's row: how it is taken off again
	mac        net.HardwareAddr // of the pod's interface
	hostMAC    net.HardwareAddr
	ipam       *current.Result
	layout     *layout
	shaper     maps.Shaper
	toPod      netdev.Shaper
	fromPod    netdev.Shaper
	generation uint64
}

type step struct {
	name string
	do   func(context.Context) error
}

// Setup connects a pod and gives the CNI result of its newest version.
func Setup(ctx context.Context, d *Deps, spec Spec) (*current.Result, error) {
	s, err := newSetup(d, spec)
	if err != nil {
		return nil, err
	}
	defer shareMaking()()
	if err := s.run(ctx, s.steps()); err != nil {
		return nil, err
	}
	s.undo.commit()
	return s.result(), nil
}

func newSetup(d *Deps, spec Spec) (*setup, error) {
	g, err := generation()
	if err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	if spec.Uplinks, err = d.withoutPods(spec.Uplinks); err != nil {
		return nil, err
	}
	s := &setup{Deps: d, Spec: spec, generation: g, mac: spec.MAC, hostMAC: hardwareAddr(spec.Owner, "host")}
	if s.mac == nil {
		s.mac = hardwareAddr(spec.Owner, "pod")
	}
	if s.MTU == 0 {
		s.MTU = smallestMTU(spec.Uplinks)
	}
	return s, nil
}

// steps is the order of ADD. The veth comes first, as its name is the one trace that is
// found without any table, and the IPAM plugin's state second. Nothing carries a packet
// before the programs are attached and the rows that they ask for are there.
func (s *setup) steps() []step {
	return []step{
		{"clean remains", s.cleanRemains},
		{"create veth", s.createVeth},
		{"own iface", s.ownIface},
		{"get addresses", s.getAddresses},
		{"prepare node", s.prepareNode},
		{"list ranges", s.listRanges},
		{"prepare masquerade", s.prepareMasquerade},
		{"attach programs", s.attachPrograms},
		{"write limits", s.writeLimits},
		{"write pods", s.writePods},
		{"claim hostports", s.claimHostports},
		{"configure host side", s.configureHost},
		{"configure pod side", s.configurePod},
		{"await host side", s.awaitHost},
	}
}

// run does the steps; after an error, or when ctx ends, it takes back what was done.
func (s *setup) run(ctx context.Context, steps []step) error {
	for _, st := range steps {
		err := ctx.Err()
		if err == nil {
			err = st.do(ctx)
		}
		if err == nil {
			continue
		}
		s.Log.Error("setup failed", "step", st.name, "error", err)
		if undo := s.undo.run(); undo != nil {
			s.Log.Error("undo failed", "error", undo)
			if errors.Is(err, loader.ErrLocked) {
				return err // says it all
			}
			return fmt.Errorf("%w (and then: %w)", err, undo)
		}
		return err
	}
	return nil
}

// cleanRemains takes away what an earlier attachment of the same owner left; the runtime
// would not ask for it if it were in use.
func (s *setup) cleanRemains(ctx context.Context) error {
	found, err := s.clean(s.Owner)
	if err != nil {
		return err
	}
	if !found {
		return nil
	}
	s.Log.Info("cleaned remains of the same attachment")
	if s.IPAM == nil {
		return nil
	}
	return s.IPAM.Del(ctx)
}

func (s *setup) createVeth(ctx context.Context) error {
	pair := netdev.Veth{
		Name: HostName(s.Owner), MAC: s.hostMAC, MTU: s.MTU,
		PeerName: s.IfName, PeerMAC: s.mac, Peer: s.Netns,
	}
	link, err := s.Node.CreateVeth(pair)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s in %s: %w", ErrNameTaken, s.IfName, s.Netns.Path, err)
	}
	if err != nil {
		return err
	}
	s.link = link
	// What the pod sends until its end is gone may be counted: undone after that.
	s.undo.push("counters", func() error { return s.Datapath.Maps.Counters.DeleteIfindex(link.Index) })
	s.undo.push("veth", func() error { return s.Node.DeleteLink(link.Index) })
	return nil
}

// ownIface says whose the veth is. From here on GC finds it.
func (s *setup) ownIface(context.Context) error {
	// A device that went without DEL may have had this index.
	if old, err := s.Datapath.Maps.Ifaces.Get(s.link.Index); err == nil {
		if err := errors.Join(s.dropRoutes(old), s.dropState(old)); err != nil {
			return err
		}
	} else if !errors.Is(err, maps.ErrNotFound) {
		return err
	}
	s.iface = maps.Iface{
		Ifindex: s.link.Index, Owner: s.Owner, Generation: s.generation,
		Netns: s.Netns.Inode, NetnsPath: s.Netns.Path, HostIfName: s.link.Name, MTU: s.MTU, Flags: s.kept,
	}
	// Before the row is there, so undone after it is gone: the last one takes its network's
	// ranges along.
	s.undo.push("ranges", func() error { return s.releaseNetworks(s.Network) })
	s.undo.pushWitness("iface", func() error { return s.Datapath.Maps.Ifaces.Delete(s.link.Index) })
	return s.Datapath.Maps.Ifaces.Put(s.iface)
}

func (s *setup) getAddresses(ctx context.Context) error {
	s.undo.push("addresses", func() error {
		ctx, stop := undoContext(ctx)
		defer stop()
		return s.IPAM.Del(ctx)
	})
	result, err := s.IPAM.Add(ctx)
	if err != nil {
		return err
	}
	s.ipam = result
	s.layout, err = newLayout(result)
	if err != nil {
		return err
	}
	if s.layout.has(true) && s.MTU < minIPv6MTU {
		return netconf.Bad("mtu", fmt.Sprint(s.MTU), fmt.Sprintf("IPv6 needs %d at least", minIPv6MTU))
	}
	return s.chooseShapers()
}

func (s *setup) chooseShapers() error {
	config, err := s.Datapath.Maps.Config.Get()
	if err != nil {
		return err
	}
	s.shaper = shaperKind(config.Features)
	s.toPod, s.fromPod = s.Ingress.shaper(s.MTU, s.shaper), s.Egress.shaper(s.MTU, s.shaper)
	return nil
}

func (s *setup) prepareNode(context.Context) error {
	if err := s.enableForwarding(); err != nil {
		return err
	}
	if err := s.nameUplinks(); err != nil {
		return err
	}
	for _, l := range s.Uplinks.Links {
		if err := s.Datapath.AttachUplink(l.Index); err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) enableForwarding() error {
	v4, v6 := s.layout.has(false), s.layout.has(true)
	if on, err := s.Node.Forwards(v4, v6); on || err != nil {
		return err
	}
	unlock, err := s.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.Node.EnableForwarding(v4, v6)
}

func (s *setup) attachPrograms(context.Context) error {
	s.undo.push("programs", func() error { return s.Datapath.DetachPod(s.link.Index) })
	return s.Datapath.AttachPod(s.link.Index)
}

func smallestMTU(u netdev.Uplinks) int {
	mtu := fallbackMTU
	for i, l := range u.Links {
		if i == 0 || l.MTU < mtu {
			mtu = l.MTU
		}
	}
	return mtu
}

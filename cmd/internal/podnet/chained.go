// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// Behind another plugin, the interface, its addresses and its routes are that plugin's: we
// put rows, programs and shapers on its veth, and take them off again. Spec.Prev says what
// the plugin made.

// Chain gives a pod that other plugins have connected its hostPorts and limits.
func Chain(ctx context.Context, d *Deps, spec Spec) error {
	s, err := newSetup(d, spec)
	if err != nil {
		return err
	}
	s.kept = maps.PodChained
	if spec.SourceCheck {
		s.kept |= maps.PodSourceCheck // from the first row on: the interface is in use
	}
	if err := s.run(ctx, s.chainedSteps()); err != nil {
		return err
	}
	s.undo.commit()
	return nil
}

// chainedSteps is the order of ADD. What can be wrong with the veth is found first; then
// the row of ifaces is written, by which all that follows is found.
func (s *setup) chainedSteps() []step {
	return []step{
		{"find veth", s.findVeth},
		{"read addresses", s.readAddresses},
		{"clean remains", s.cleanRemains},
		{"look at queues", s.checkQueues},
		{"own iface", s.ownIface},
		{"prepare node", s.prepareChained},
		{"list ranges", s.listRanges},
		{"prepare masquerade", s.prepareMasquerade},
		{"attach programs", s.attachToForeign},
		{"shape host side", s.shapeHost},
		{"shape pod side", s.shapePod},
		{"write limits", s.writeLimits},
		{"write pods", s.writePods},
		{"claim hostports", s.claimHostports},
	}
}

// findVeth looks both ends up and changes nothing.
func (s *setup) findVeth(context.Context) error {
	if err := checkSandbox(s.Prev, s.IfName, s.Netns); err != nil {
		return err
	}
	pod, err := netdev.OpenIn(s.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	inside, outside, err := findVeth(s.Node, pod, s.Netns, s.IfName)
	if err != nil {
		return err
	}
	// Whoever changed them later (udev, tuning): this is what the two go by now.
	s.link, s.mac, s.hostMAC, s.MTU = outside, inside.MAC, outside.MAC, min(inside.MTU, outside.MTU)
	return s.refuseOwn()
}

// findVeth finds the container's interface and its other end on the node.
func findVeth(node, pod *netdev.Handle, ns *netdev.Namespace, name string) (inside, outside netdev.Link, err error) {
	inside, err = pod.LinkNamed(name)
	if isGone(err) {
		return inside, outside, badPrev(name, "the container has no such interface")
	}
	if err != nil {
		return inside, outside, err
	}
	if inside.Kind != "veth" {
		return inside, outside, badPrev(name, fmt.Sprintf("it is of kind %q: hostPorts and limits need a veth, with one end on the node", inside.Kind))
	}
	outside, err = node.PeerIn(ns, inside)
	if errors.Is(err, netdev.ErrNoPeer) {
		return inside, outside, badPrev(name, "the other end of this veth is not in the node's network namespace")
	}
	return inside, outside, err
}

// refuseOwn refuses a veth that is in use as another attachment: culvert made it, or was
// chained behind it in another network. The row, by which all is taken off, is one a device.
func (s *setup) refuseOwn() error {
	row, err := s.Datapath.Maps.Ifaces.Get(s.link.Index)
	if errors.Is(err, maps.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case !isDeviceOf(s.link, row) || row.Netns != s.Netns.Inode: // of a device that is gone
		return nil
	case row.Flags&maps.PodChained == 0:
		return badPrev(s.IfName, "culvert itself made it: give that entry of the list the capabilities, and take this one out")
	case row.Owner != s.Owner:
		return badPrev(s.IfName, fmt.Sprintf("culvert is chained behind it already, for %s", row.Owner))
	}
	return nil // left from an ADD that is repeated
}

// checkQueues refuses to replace what somebody else shapes by, and finds out whether
// somebody else has filters.
func (s *setup) checkQueues(context.Context) error {
	clsact, err := s.Node.HasClsactQdisc(s.link.Index)
	if err != nil {
		return err
	}
	if !clsact {
		s.kept |= maps.PodOwnClsact
	}
	if err := s.chooseShapers(); err != nil {
		return err
	}
	if s.Ingress.Rate > 0 {
		if err := freeRoot(s.Node, s.link.Index); err != nil {
			return err
		}
	}
	if s.Egress.Rate == 0 {
		return nil
	}
	return s.inPod(freeRoot)
}

// freeRoot is an error if somebody's qdisc is in the place of our shaper.
func freeRoot(h *netdev.Handle, index int) error {
	foreign, err := h.ForeignQdisc(index)
	if err != nil || foreign == "" {
		return err
	}
	l, err := h.Link(index)
	if err != nil {
		return err
	}
	return netconf.Bad("bandwidth", fmt.Sprintf("qdisc %s on %s", foreign, l.Name),
		"somebody else's, which is not replaced; is the plugin bandwidth in the list too?")
}

// prepareChained is prepareNode once the row stands, by which the pod's own bridge is known
// to be no uplink.
func (s *setup) prepareChained(ctx context.Context) (err error) {
	if s.Uplinks, err = s.withoutPods(s.Uplinks); err != nil {
		return err
	}
	return s.prepareNode(ctx)
}

// attachToForeign is attachPrograms for a device that stays.
func (s *setup) attachToForeign(context.Context) error {
	s.undo.push("programs", func() error { return s.leaveVeth(s.iface) })
	return s.Datapath.AttachPod(s.link.Index)
}

func (s *setup) shapeHost(context.Context) error {
	s.undo.push("host side's shaper", func() error { return s.Node.DropShaper(s.link.Index) })
	return shapeEnd(s.Node, s.link.Index, s.toPod)
}

func (s *setup) shapePod(context.Context) error {
	s.undo.push("pod side's shaper", func() error {
		return s.inPod(func(h *netdev.Handle, index int) error { return h.DropShaper(index) })
	})
	return s.inPod(func(h *netdev.Handle, index int) error { return shapeEnd(h, index, s.fromPod) })
}

// shapeEnd also takes a shaper of ours off of which the rows were lost.
func shapeEnd(h *netdev.Handle, index int, sh netdev.Shaper) error {
	if sh.Rate == 0 {
		return h.DropShaper(index)
	}
	return h.ChangeShaper(index, sh)
}

// inPod works on the container's end.
func (s *setup) inPod(do func(*netdev.Handle, int) error) error {
	pod, err := netdev.OpenIn(s.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	return do(pod, s.link.PeerIndex)
}

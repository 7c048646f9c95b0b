// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Veth is a pair to be made.
type Veth struct {
	Name     string // host side
	MAC      net.HardwareAddr
	PeerName string // the pod's side, made in Peer under its final name
	PeerMAC  net.HardwareAddr
	Peer     *Namespace
	MTU      int // of both ends
}

// Link is what is to be known of a device.
type Link struct {
	Index int
	Name  string
	Kind  string // "veth", "bridge", ...; "device" for hardware
	// PeerIndex is the index of the other end of a veth, in the namespace of that one.
	PeerIndex int
	Master    int // index of the bridge, or whatever it is a port of; 0: none
	MAC       net.HardwareAddr
	MTU       int
	Ethernet  bool
	Up        bool // administratively
	Alias     string
}

// CreateVeth makes the pair, both ends down, by one request: the MACs are there before
// udev sees the device, and a device whose MAC was given is left alone by it (a later
// change of the host's MAC makes the kernel drop what the pod sends). The error wraps
// fs.ErrExist if either name is taken.
func (h *Handle) CreateVeth(v Veth) (Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = v.Name, v.MAC, v.MTU
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr, pair.PeerMTU = v.PeerName, v.PeerMAC, uint32(v.MTU)
	pair.PeerNamespace = netlink.NsFd(v.Peer.fd())
	if err := h.nl.LinkAdd(pair); err != nil {
		return Link{}, fmt.Errorf("create veth %s with peer %s: %w", v.Name, v.PeerName, err)
	}
	return h.Link(pair.Index)
}

// Link looks a device up by its index; unix.ENODEV if there is none.
func (h *Handle) Link(index int) (Link, error) {
	l, err := h.nl.LinkByIndex(index)
	if err != nil {
		return Link{}, fmt.Errorf("look up device %d: %w", index, gone(err))
	}
	return toLink(l), nil
}

// LinkNamed looks a device up by its name; unix.ENODEV if there is none.
func (h *Handle) LinkNamed(name string) (Link, error) {
	l, err := h.nl.LinkByName(name)
	if err != nil {
		return Link{}, fmt.Errorf("look up device %s: %w", name, gone(err))
	}
	return toLink(l), nil
}

// LinksNamed lists the devices whose names are wanted. It looks at every device: not for
// verbs that have to be fast.
func (h *Handle) LinksNamed(wanted func(name string) bool) ([]Link, error) {
	all, err := dump(func() ([]netlink.Link, error) {
		return h.nl.LinkList()
	})
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var links []Link
	for _, l := range all {
		if wanted(l.Attrs().Name) {
			links = append(links, toLink(l))
		}
	}
	return links, nil
}

// DeleteLink deletes a device, and with a veth its peer. It is no error that there is
// none.
func (h *Handle) DeleteLink(index int) error {
	err := h.nl.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if err != nil && !errors.Is(gone(err), unix.ENODEV) {
		return fmt.Errorf("delete device %d: %w", index, err)
	}
	return nil
}

func (h *Handle) setUp(index int) error {
	if err := h.nl.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}); err != nil {
		return fmt.Errorf("set device %d up: %w", index, err)
	}
	return nil
}

// setUpAs sets a device up and names it for people, by one request.
func (h *Handle) setUpAs(index int, alias string) error {
	if alias == "" {
		return h.setUp(index)
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change, msg.Flags = int32(index), unix.IFF_UP, unix.IFF_UP
	req, err := h.request(unix.RTM_NEWLINK, unix.NLM_F_ACK, msg, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)))
	if err == nil {
		_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	}
	if err != nil {
		return fmt.Errorf("set device %d up: %w", index, gone(err))
	}
	return nil
}

// gone makes the library's two ways to say "no such device" into the kernel's one.
func gone(err error) error {
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || errors.Is(err, unix.ENXIO) {
		return unix.ENODEV
	}
	return err
}

func toLink(l netlink.Link) Link {
	a := l.Attrs()
	return Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(), PeerIndex: a.ParentIndex,
		Master: a.MasterIndex, MAC: a.HardwareAddr, MTU: a.MTU, Alias: a.Alias,
		Ethernet: a.EncapType == "ether", Up: a.Flags&net.FlagUp != 0,
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package netdev speaks rtnetlink and writes sysctls for the plugin: the veth pair, its
// two ends' addresses, neighbours, routes and shapers, clsact filters, and what there
// is to know about the node's own devices. It is the only importer of
// vishvananda/netlink.
//
// Everything happens in the network namespace of the calling thread, unless a
// Namespace is named; no function leaves a thread in another one. Errors wrap the
// kernel's errno: fs.ErrExist for a taken name, unix.ENODEV for a device that is gone.
package netdev

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// RouteProtocol marks the routes that culvert makes in the node's tables.
const RouteProtocol = 67 // 'C'

// Handle is an rtnetlink socket. It may be used by one goroutine at a time.
type Handle struct {
	nl *netlink.Handle
	ns netns.NsHandle // None: that of the calling thread
	// strict is a second socket, for the requests that the library cannot make: the
	// kernel filters its dumps, which for the library's own it must not.
	strict *nl.SocketHandle
	// clsact remembers devices that have the qdisc, to ask for it once a device.
	clsact map[int]bool
	tunnel int // ifindex of what EnsureTunnel made; 0: none
}

// Open gives a handle on the namespace of the calling thread.
func Open() (*Handle, error) { return open(netns.None()) }

// OpenIn gives a handle on another namespace, which has to stay open as long.
func OpenIn(ns *Namespace) (*Handle, error) {
	h, err := open(netns.NsHandle(ns.fd()))
	if err != nil {
		return nil, fmt.Errorf("enter %s: %w", ns.Path, err)
	}
	return h, nil
}

func open(ns netns.NsHandle) (*Handle, error) {
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return &Handle{nl: nl, ns: ns, clsact: map[int]bool{}}, nil
}

// Close releases the sockets.
func (h *Handle) Close() {
	h.nl.Close()
	if h.strict != nil {
		h.strict.Close()
	}
}

// request begins a request on the strict socket. Its dumps carry headers of the right
// type and are filtered by them (NETLINK_GET_STRICT_CHK, Linux 4.20).
func (h *Handle) request(kind, flags int, data ...nl.NetlinkRequestData) (*nl.NetlinkRequest, error) {
	if h.strict == nil {
		s, err := nl.GetNetlinkSocketAt(h.ns, netns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open rtnetlink: %w", err)
		}
		h.strict = &nl.SocketHandle{Socket: s}
		if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
			return nil, fmt.Errorf("set up rtnetlink: %w", err)
		}
	}
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: h.strict}
	for _, d := range data {
		req.AddData(d)
	}
	return req, nil
}

// dumpTries bounds how often a dump is asked for again. Each try sees a change between
// two of its parts; on a node that starts 50 pods at once several in a row do.
const dumpTries = 64

// dump runs a list request until it comes through whole: the kernel marks a dump that
// a change cut across, and the library gives the torn list together with an error.
func dump[T any](list func() (T, error)) (T, error) {
	var got T
	var err error
	for range dumpTries {
		got, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return got, err
}

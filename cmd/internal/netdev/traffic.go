// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Traffic is what the device in a pod has counted since it was made: frames with their
// Ethernet headers, of a packet that the kernel has not segmented yet the headers once.
type Traffic struct {
	RxBytes, RxPackets uint64
	TxBytes, TxPackets uint64
}

// Traffic reads what the other ends of these pairs have counted, by the index of the
// host's end, without entering a namespace. The host's end does not count what
// bpf_redirect_peer hands past it. A pair that is gone is left out.
func (h *Handle) Traffic(hostEnds map[int]bool) (map[int]Traffic, error) {
	links, err := dump(func() ([]netlink.Link, error) {
		return h.nl.LinkList()
	})
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	counted := map[int]Traffic{}
	for _, l := range links {
		a := l.Attrs()
		if !hostEnds[a.Index] || a.ParentIndex == 0 {
			continue
		}
		t, ok, err := h.peerTraffic(a)
		if err != nil {
			return nil, fmt.Errorf("read counters of the peer of %s: %w", a.Name, err)
		}
		if ok {
			counted[a.Index] = t
		}
	}
	return counted, nil
}

// peerTraffic asks for the other end by the number that this namespace has for the other
// one (IFLA_TARGET_NETNSID, Linux 4.20). That end, or a new one of its index, may have
// gone to be replaced since the list was made.
func (h *Handle) peerTraffic(host *netlink.LinkAttrs) (t Traffic, ok bool, err error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(host.ParentIndex)
	data := []nl.NetlinkRequestData{msg}
	if host.NetNsID >= 0 {
		data = append(data, nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(host.NetNsID))))
	}
	req, err := h.request(unix.RTM_GETLINK, unix.NLM_F_ACK, data...)
	if err != nil {
		return t, false, err
	}
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err = gone(err); errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return t, false, nil
	}
	if err != nil || len(messages) == 0 {
		return t, false, err
	}
	attrs, err := nl.ParseRouteAttrAsMap(messages[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return t, false, err
	}
	order := nl.NativeEndian()
	link, stats := attrs[unix.IFLA_LINK].Value, attrs[unix.IFLA_STATS64].Value
	if len(link) != 4 || int(order.Uint32(link)) != host.Index || len(stats) < 32 {
		return t, false, nil
	}
	// struct rtnl_link_stats64: rx_packets, tx_packets, rx_bytes, tx_bytes, ...
	field := func(n int) uint64 { return order.Uint64(stats[8*n:]) }
	return Traffic{RxPackets: field(0), TxPackets: field(1), RxBytes: field(2), TxBytes: field(3)}, true, nil
}

// ShaperDrops says how many packets the shaper of a device has dropped; 0 if it has none,
// or is gone.
func (h *Handle) ShaperDrops(index int) (uint64, error) {
	q, err := h.qdisc(index, netlink.HANDLE_ROOT)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return 0, err
	}
	if q.handle != shaperHandle {
		return 0, nil
	}
	return q.drops, nil
}

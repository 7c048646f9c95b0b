// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNoQdisc says that the kernel has no qdisc of a kind, and no module for it.
var ErrNoQdisc = errors.New("the kernel lacks a qdisc")

const (
	shaperHandle = filterPriority << 16     // "CU:0", to be told from anybody's
	flowsHandle  = shaperHandle + (1 << 16) // "CV:0"
	flowsParent  = shaperHandle | 1         // a bucket has one class
	// The kernel counts times of qdiscs in ticks of 64 ns since 2.6.30, in 32 bits.
	tickNS = 64
)

func tbf(index int, s Shaper) *netlink.Tbf {
	// Rounded up: a burst of one packet that is a byte too short would let none pass.
	tick := s.Rate * tickNS
	ticks := (s.Burst*1e9 + tick - 1) / tick
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: shaperHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       s.Rate,
		Buffer:     uint32(min(ticks, math.MaxUint32)),
		Limit:      uint32(min(s.Queue, math.MaxUint32)),
	}
}

func fqCodel(index int, f *FlowQueues) netlink.Qdisc {
	q := netlink.NewFqCodel(netlink.QdiscAttrs{LinkIndex: index, Handle: flowsHandle, Parent: flowsParent})
	q.Target, q.Interval = uint32(f.Target.Microseconds()), uint32(f.Interval.Microseconds())
	q.MemoryLimit = uint32(min(f.Memory, math.MaxUint32))
	return q
}

func modify(how func(netlink.Qdisc) error, q netlink.Qdisc) error {
	err := how(q)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: %s, module sch_%s: %w", ErrNoQdisc, q.Type(), q.Type(), err)
	}
	return gone(err)
}

// deleteRoot deletes the qdisc at the root if it has that handle. It is no error that
// there is none.
func (h *Handle) deleteRoot(index int, handle uint32) error {
	err := h.nl.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT,
	}})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return gone(err)
}

// qdisc is one as the kernel tells it.
type qdisc struct {
	kind    string // "": there is none
	handle  uint32
	options []byte
	backlog uint64 // bytes
	sent    uint64 // bytes that have left
	drops   uint64 // packets
}

// qdisc asks for the one at a parent: a dump would list those of every device. The queue
// that a bucket makes for itself counts as none, as the kernel does not show it.
func (h *Handle) qdisc(index int, parent uint32) (qdisc, error) {
	req, err := h.request(unix.RTM_GETQDISC, unix.NLM_F_ACK|unix.NLM_F_ECHO, // without ECHO old kernels tell only listeners
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
	if err != nil {
		return qdisc{}, err
	}
	var q qdisc
	var broken error
	err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC, func(m []byte) bool {
		q, broken = parseQdisc(m)
		return false
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err = errors.Join(err, broken); err != nil {
		return qdisc{}, fmt.Errorf("read qdisc of device %d: %w", index, gone(err))
	}
	return q, nil
}

func parseQdisc(m []byte) (qdisc, error) {
	attrs, err := nl.ParseRouteAttrAsMap(m[nl.SizeofTcMsg:])
	if err != nil {
		return qdisc{}, err
	}
	q := qdisc{
		kind:    nl.BytesToString(attrs[nl.TCA_KIND].Value),
		handle:  nl.DeserializeTcMsg(m).Handle,
		options: attrs[nl.TCA_OPTIONS].Value,
	}
	stats, err := nl.ParseRouteAttrAsMap(attrs[nl.TCA_STATS2].Value)
	if queue := stats[nl.TCA_STATS_QUEUE].Value; len(queue) >= 12 { // struct gnet_stats_queue: qlen, backlog, drops, ...
		q.backlog = uint64(nl.NativeEndian().Uint32(queue[4:]))
		q.drops = uint64(nl.NativeEndian().Uint32(queue[8:]))
	}
	if basic := stats[nl.TCA_STATS_BASIC].Value; len(basic) >= 8 { // struct gnet_stats_basic: bytes, packets
		q.sent = nl.NativeEndian().Uint64(basic)
	}
	return q, err
}

// tbfRate finds the rate in a bucket's options.
func tbfRate(raw []byte) (uint64, error) {
	options, err := nl.ParseRouteAttrAsMap(raw)
	if err != nil {
		return 0, err
	}
	if rate, ok := options[nl.TCA_TBF_RATE64]; ok {
		return nl.NativeEndian().Uint64(rate.Value), nil
	}
	parms := options[nl.TCA_TBF_PARMS].Value
	if len(parms) < nl.SizeofTcTbfQopt {
		return 0, fmt.Errorf("%d bytes are no tbf", len(parms))
	}
	return uint64(nl.DeserializeTcTbfQopt(parms).Rate.Rate), nil
}

// HasQdisc implements loader.Netlink.
func (h *Handle) HasQdisc(kind string) (bool, error) {
	tried := make(chan error)
	go func() { tried <- tryQdisc(kind) }()
	err := <-tried
	switch {
	case err == nil, errors.Is(err, unix.EINVAL): // it is there, and wants parameters
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, fmt.Errorf("look for qdisc %s: %w", kind, err)
}

// tryQdisc sets a qdisc on the loopback device of a network namespace that lives no
// longer than its thread; the kernel loads the module if it is one.
func tryQdisc(kind string) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	h, err := Open()
	if err != nil {
		return err
	}
	defer h.Close()
	return h.nl.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: loIndex, Parent: netlink.HANDLE_ROOT}, QdiscType: kind,
	})
}

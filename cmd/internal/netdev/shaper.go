// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Shaper is a token bucket filter at the root of a device: it holds what the device
// sends to Rate.
type Shaper struct {
	Rate  uint64 // byte/s; 0: none
	Burst uint64 // bytes that may go at once
	Queue uint64 // bytes that may wait
}

const (
	shaperHandle = filterPriority << 16 // "CU:0", to be told from anybody's
	// The kernel counts times of qdiscs in ticks of 64 ns since 2.6.30, in 32 bits.
	tickNS = 64
)

// SetShaper puts the shaper in the place of what is at the root of the device.
func (h *Handle) SetShaper(index int, s Shaper) error {
	ticks := s.Burst * 1e9 / s.Rate / tickNS
	err := h.nl.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: shaperHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       s.Rate,
		Buffer:     uint32(min(ticks, math.MaxUint32)),
		Limit:      uint32(min(s.Queue, math.MaxUint32)),
	})
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("set shaper of device %d: the kernel has no qdisc tbf, module sch_tbf: %w", index, err)
	}
	if err != nil {
		return fmt.Errorf("set shaper of device %d: %w", index, gone(err))
	}
	return nil
}

// ShaperRate reads the rate of the shaper at the root of a device in byte/s, 0 if there
// is none. It asks for the one qdisc: a dump would list those of every device.
func (h *Handle) ShaperRate(index int) (uint64, error) {
	req, err := h.request(unix.RTM_GETQDISC, unix.NLM_F_ACK|unix.NLM_F_ECHO, // without ECHO old kernels tell only listeners
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	if err != nil {
		return 0, err
	}
	var rate uint64
	var broken error
	err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC, func(m []byte) bool {
		rate, broken = tbfRate(m)
		return false
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err = errors.Join(err, broken); err != nil {
		return 0, fmt.Errorf("read shaper of device %d: %w", index, gone(err))
	}
	return rate, nil
}

// tbfRate finds the rate in what the kernel tells of a qdisc, 0 if it is no TBF.
func tbfRate(m []byte) (uint64, error) {
	attrs, err := nl.ParseRouteAttrAsMap(m[nl.SizeofTcMsg:])
	if err != nil || nl.BytesToString(attrs[nl.TCA_KIND].Value) != "tbf" {
		return 0, err
	}
	options, err := nl.ParseRouteAttrAsMap(attrs[nl.TCA_OPTIONS].Value)
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

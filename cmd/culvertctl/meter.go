// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// meter reads what the node's counters say of each pod; two readings make rates.
type meter struct {
	a    *app
	node *netdev.Handle
	// partial: the kernel does not count what the fast path hands to a pod whose ingress
	// is not limited.
	partial bool
}

// reading is one look; maps are by the ifindex of the pod's host side.
type reading struct {
	at      time.Time
	pods    []maps.Iface
	limits  map[int]rateLimits
	traffic map[int]netdev.Traffic
	drops   map[int]uint64 // packets, of every reason; of devices that are no pod's too
	shaper  map[int]uint64 // packets that the shaper of ingress dropped
}

// rateLimits are bit/s; 0: none.
type rateLimits struct{ ingress, egress uint64 }

// rates are what a pod receives (rx) and sends (tx). Drops are packets since the reading
// before: of the datapath, and of the shaper in front of the pod.
type rates struct {
	RxBits    *uint64 `json:"rxBits"` // bit/s; null where the kernel does not count it
	RxPackets *uint64 `json:"rxPackets"`
	TxBits    *uint64 `json:"txBits"`
	TxPackets *uint64 `json:"txPackets"`
	Drops     uint64  `json:"drops"`
}

func newMeter(a *app) (*meter, error) {
	node, err := netdev.Open()
	if err != nil {
		return nil, err
	}
	return &meter{a: a, node: node, partial: !loader.CountsPeers()}, nil
}

func (m *meter) close() { m.node.Close() }

// read opens the tables anew each time: an upgrade may have moved them.
func (m *meter) read() (reading, error) {
	d, err := m.a.open()
	if err != nil {
		return reading{}, err
	}
	defer d.Close()
	r := reading{at: time.Now(), limits: map[int]rateLimits{}, drops: map[int]uint64{}, shaper: map[int]uint64{}}
	ifaces, err := maps.Collect(d.Maps.Ifaces.All())
	if err != nil {
		return r, err
	}
	r.pods = youngest(ifaces)
	limits, err := maps.Collect(d.Maps.Limits.All())
	if err != nil {
		return r, err
	}
	for _, l := range limits {
		both := r.limits[l.Ifindex]
		if l.Direction == maps.Ingress {
			both.ingress = l.Rate
		} else {
			both.egress = l.Rate
		}
		r.limits[l.Ifindex] = both
	}
	counters, err := maps.Collect(d.Maps.Counters.All())
	if err != nil {
		return r, err
	}
	for _, c := range counters {
		r.drops[c.Ifindex] += c.Packets
	}
	return r, m.readDevices(&r)
}

func (m *meter) readDevices(r *reading) error {
	ends := map[int]bool{}
	for _, i := range r.pods {
		ends[i.Ifindex] = true
	}
	var err error
	if r.traffic, err = m.node.Traffic(ends); err != nil {
		return err
	}
	for ifindex, l := range r.limits {
		if l.ingress == 0 {
			continue
		}
		if r.shaper[ifindex], err = m.node.ShaperDrops(ifindex); err != nil {
			return err
		}
	}
	return nil
}

// receives says whether what the pod received has been counted, all of it.
func (m *meter) receives(r reading, ifindex int) bool {
	return !m.partial || r.limits[ifindex].ingress > 0
}

// rates of one pod between two readings; none of a pod that was not there before.
func (m *meter) rates(before, after reading, ifindex int) rates {
	since := func(was, is map[int]uint64) uint64 {
		if is[ifindex] < was[ifindex] { // a new shaper, a new pod
			return is[ifindex]
		}
		return is[ifindex] - was[ifindex]
	}
	r := rates{Drops: since(before.drops, after.drops) + since(before.shaper, after.shaper)}
	was, ok1 := before.traffic[ifindex]
	is, ok2 := after.traffic[ifindex]
	seconds := after.at.Sub(before.at).Seconds()
	if !ok1 || !ok2 || seconds <= 0 || is.RxBytes < was.RxBytes || is.TxBytes < was.TxBytes {
		return r
	}
	rate := func(was, is, unit uint64) *uint64 {
		n := uint64(float64((is-was)*unit)/seconds + 0.5)
		return &n
	}
	r.TxBits, r.TxPackets = rate(was.TxBytes, is.TxBytes, 8), rate(was.TxPackets, is.TxPackets, 1)
	if m.receives(before, ifindex) && m.receives(after, ifindex) {
		r.RxBits, r.RxPackets = rate(was.RxBytes, is.RxBytes, 8), rate(was.RxPackets, is.RxPackets, 1)
	}
	return r
}

// pause waits for the time between two readings; false: the user has had enough.
func pause(ctx context.Context, interval time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(interval):
		return true
	}
}

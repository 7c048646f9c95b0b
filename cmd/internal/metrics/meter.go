// SPDX-License-Identifier: Apache-2.0

// Package metrics is what the node counts of pods and drops: readings for rates, and metrics for
// Prometheus, which culvertctl prints and culvertd answers with.
package metrics

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Open opens the tables; what it gives is closed.
type Open func() (*loader.Datapath, error)

// Meter reads what the node's counters say of each pod; two readings make rates.
type Meter struct {
	open Open
	node *netdev.Handle
	// Partial: the kernel does not count what the fast path hands to a pod whose ingress
	// is not limited.
	Partial bool
}

// Reading is one look; maps are by the ifindex of the pod's host side.
type Reading struct {
	At      time.Time
	Pods    []maps.Iface
	Limits  map[int]Limits
	Traffic map[int]netdev.Traffic
	Drops   map[int]uint64 // packets, of every reason; of devices that are no pod's too
	Shaper  map[int]uint64 // packets that the shaper of ingress dropped
}

// Limits are bit/s; 0: none.
type Limits struct{ Ingress, Egress uint64 }

// Rates are what a pod receives (rx) and sends (tx). Drops are packets since the reading
// before: of the datapath, and of the shaper in front of the pod.
type Rates struct {
	RxBits    *uint64 `json:"rxBits"` // bit/s; null where the kernel does not count it
	RxPackets *uint64 `json:"rxPackets"`
	TxBits    *uint64 `json:"txBits"`
	TxPackets *uint64 `json:"txPackets"`
	Drops     uint64  `json:"drops"`
}

// NewMeter opens what Read needs; Close it.
func NewMeter(open Open) (*Meter, error) {
	node, err := netdev.Open()
	if err != nil {
		return nil, err
	}
	return &Meter{open: open, node: node, Partial: !loader.CountsPeers()}, nil
}

// Close releases it.
func (m *Meter) Close() { m.node.Close() }

// Read opens the tables anew each time: an upgrade may have moved them.
func (m *Meter) Read() (Reading, error) {
	d, err := m.open()
	if err != nil {
		return Reading{}, err
	}
	defer d.Close()
	r := Reading{At: time.Now(), Limits: map[int]Limits{}, Drops: map[int]uint64{}, Shaper: map[int]uint64{}}
	ifaces, err := maps.Collect(d.Maps.Ifaces.All())
	if err != nil {
		return r, err
	}
	r.Pods = Youngest(ifaces)
	limits, err := maps.Collect(d.Maps.Limits.All())
	if err != nil {
		return r, err
	}
	for _, l := range limits {
		both := r.Limits[l.Ifindex]
		if l.Direction == maps.Ingress {
			both.Ingress = l.Rate
		} else {
			both.Egress = l.Rate
		}
		r.Limits[l.Ifindex] = both
	}
	counters, err := maps.Collect(d.Maps.Counters.All())
	if err != nil {
		return r, err
	}
	for _, c := range counters {
		r.Drops[c.Ifindex] += c.Packets
	}
	return r, m.readDevices(&r)
}

func (m *Meter) readDevices(r *Reading) error {
	ends := map[int]bool{}
	for _, i := range r.Pods {
		ends[i.Ifindex] = true
	}
	var err error
	if r.Traffic, err = m.node.Traffic(ends); err != nil {
		return err
	}
	for ifindex, l := range r.Limits {
		if l.Ingress == 0 {
			continue
		}
		if r.Shaper[ifindex], err = m.node.ShaperDrops(ifindex); err != nil {
			return err
		}
	}
	return nil
}

// Receives says whether what the pod received has been counted, all of it.
func (m *Meter) Receives(r Reading, ifindex int) bool {
	return !m.Partial || r.Limits[ifindex].Ingress > 0
}

// Rates of one pod between two readings; none of a pod that was not there before.
func (m *Meter) Rates(before, after Reading, ifindex int) Rates {
	since := func(was, is map[int]uint64) uint64 {
		if is[ifindex] < was[ifindex] { // a new shaper, a new pod
			return is[ifindex]
		}
		return is[ifindex] - was[ifindex]
	}
	r := Rates{Drops: since(before.Drops, after.Drops) + since(before.Shaper, after.Shaper)}
	was, ok1 := before.Traffic[ifindex]
	is, ok2 := after.Traffic[ifindex]
	seconds := after.At.Sub(before.At).Seconds()
	if !ok1 || !ok2 || seconds <= 0 || is.RxBytes < was.RxBytes || is.TxBytes < was.TxBytes {
		return r
	}
	rate := func(was, is, unit uint64) *uint64 {
		n := uint64(float64((is-was)*unit)/seconds + 0.5)
		return &n
	}
	r.TxBits, r.TxPackets = rate(was.TxBytes, is.TxBytes, 8), rate(was.TxPackets, is.TxPackets, 1)
	if m.Receives(before, ifindex) && m.Receives(after, ifindex) {
		r.RxBits, r.RxPackets = rate(was.RxBytes, is.RxBytes, 8), rate(was.RxPackets, is.RxPackets, 1)
	}
	return r
}

// Youngest leaves out the rows that a crash left of an attachment that was made anew.
func Youngest(list []maps.Iface) []maps.Iface {
	return slices.DeleteFunc(slices.Clone(list), func(i maps.Iface) bool {
		return slices.ContainsFunc(list, func(other maps.Iface) bool {
			return other.Owner == i.Owner && other.Generation > i.Generation
		})
	})
}

// DeviceName is what culvertctl pods calls the host's side of a pod, or the node an uplink;
// its number if it is gone.
func DeviceName(ifindex int, owner maps.Iface) string {
	if owner.HostIfName != "" {
		return owner.HostIfName
	}
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.Name
	}
	return strconv.Itoa(ifindex)
}

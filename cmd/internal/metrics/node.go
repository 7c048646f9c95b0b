// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// Source is where a Node is read from.
type Source struct {
	PinPath string
	Version string // of the program that reads
	// Amiss says what is amiss on the node besides what the loader knows; podnet.Inspect is meant.
	Amiss func() ([]loader.Fault, error)
}

// Node is the node at one moment, as a prometheus.Collector.
type Node struct {
	source   Source
	status   loader.Status
	amiss    int // how many things
	now      Reading
	drops    map[drop]sum
	rows     map[string]int
	room     map[string]int
	receives func(ifindex int) bool
}

type drop struct{ device, hook, reason string }

type sum struct{ packets, bytes uint64 }

// Read reads it. A node that has nothing loaded, or faults, is no error: the metrics say so.
func Read(s Source) (*Node, error) {
	handle, err := netdev.Open()
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	n := &Node{source: s, status: loader.Inspect(loader.Options{PinPath: s.PinPath, Netlink: handle})}
	found, err := s.Amiss()
	if err != nil {
		return nil, err
	}
	n.amiss = len(found)
	open := func() (*loader.Datapath, error) { return loader.Open(loader.Options{PinPath: s.PinPath}) }
	d, err := open()
	if errors.Is(err, loader.ErrNotLoaded) || err != nil && len(n.status.Faults) > 0 {
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	m, err := NewMeter(open)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	n.receives = func(ifindex int) bool { return m.Receives(n.now, ifindex) }
	if n.now, err = m.Read(); err != nil {
		return nil, err
	}
	var err1, err2 error
	n.rows, err1 = Rows(d.Maps)
	n.room, err2 = d.Maps.Capacity()
	return n, errors.Join(err1, err2, n.readDrops(d.Maps))
}

// readDrops sums by what the metrics tell apart.
func (n *Node) readDrops(m *maps.Set) error {
	owners := map[int]maps.Iface{}
	for i, err := range m.Ifaces.All() {
		if err != nil {
			return err
		}
		owners[i.Ifindex] = i
	}
	n.drops = map[drop]sum{}
	for c, err := range m.Counters.All() {
		if err != nil {
			return err
		}
		if c.Packets == 0 {
			continue
		}
		k := drop{DeviceName(c.Ifindex, owners[c.Ifindex]), c.Hook.String(), c.Reason.String()}
		was := n.drops[k]
		n.drops[k] = sum{was.packets + c.Packets, was.bytes + c.Bytes}
	}
	return nil
}

// Rows counts the rows of the tables, by their names.
func Rows(m *maps.Set) (map[string]int, error) {
	rows := map[string]int{}
	return rows, errors.Join(
		count(rows, "pods", m.Pods.All()),
		count(rows, "ifaces", m.Ifaces.All()),
		count(rows, "hostports", m.Hostports.All()),
		count(rows, "limits", m.Limits.All()),
		count(rows, "flows", m.Flows.All()),
		count(rows, "halfopen", m.Halfopen.All()),
		count(rows, "counters", m.Counters.All()),
		count(rows, "nonmasq", m.Nonmasq.All()),
		count(rows, "excluded", m.Excluded.All()),
		count(rows, "remotes", m.Remotes.All()),
	)
}

func count[T any](counts map[string]int, table string, rows iter.Seq2[T, error]) error {
	counts[table] = 0
	for _, err := range rows {
		if err != nil {
			return err
		}
		counts[table]++
	}
	return nil
}

// Scrape is a prometheus.Collector that reads the Node anew each time.
type Scrape struct{ Source }

// Describe implements prometheus.Collector.
func (Scrape) Describe(to chan<- *prometheus.Desc) { (&Node{}).Describe(to) }

// Collect implements prometheus.Collector.
func (s Scrape) Collect(to chan<- prometheus.Metric) {
	n, err := Read(s.Source)
	if err != nil {
		to <- prometheus.NewInvalidMetric(Catalogue[0].desc(), err)
		return
	}
	n.Collect(to)
}

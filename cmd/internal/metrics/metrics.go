// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-cni/culvert/maps"
)

// Metric is one of docs/metrics.md, which a test holds against this list.
type Metric struct {
	Name   string
	Kind   prometheus.ValueType
	Help   string
	Labels []string
}

func gauge(name, help string, labels ...string) Metric {
	return Metric{name, prometheus.GaugeValue, help, labels}
}

func counter(name, help string, labels ...string) Metric {
	return Metric{name, prometheus.CounterValue, help, labels}
}

func (m Metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// Catalogue are all of them.
var Catalogue = []Metric{
	gauge("culvert_loaded", "1 if the datapath is loaded, 0 before the first pod."),
	gauge("culvert_build_info", "What is loaded and what reads it; always 1.", "build", "version", "kernel"),
	gauge("culvert_faults", "Faults that keep pods from starting, as culvertctl status lists them."),
	gauge("culvert_warnings", "Things amiss that do not, as culvertctl status lists them."),
	gauge("culvert_table_rows", "Rows in a table.", "table"),
	gauge("culvert_table_max_rows", "Rows that a table has room for.", "table"),

	counter("culvert_drop_packets_total", "Packets that the datapath dropped.", "device", "hook", "reason"),
	counter("culvert_drop_bytes_total", "Bytes of these packets.", "device", "hook", "reason"),

	gauge("culvert_pod_info", "An attachment; always 1. Joins a device to what runtimes call a pod.", "device", "container", "network", "ifname", "addresses"),
	counter("culvert_pod_receive_bytes_total", "Bytes that the pod's device received.", "device"),
	counter("culvert_pod_receive_packets_total", "Packets that the pod's device received.", "device"),
	counter("culvert_pod_transmit_bytes_total", "Bytes that the pod's device sent.", "device"),
	counter("culvert_pod_transmit_packets_total", "Packets that the pod's device sent.", "device"),
	gauge("culvert_pod_limit_bytes_per_second", "Limit of a pod; absent where there is none.", "device", "direction"),
	counter("culvert_pod_shaper_drop_packets_total", "Packets that the shaper of what the pod receives dropped.", "device"),
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(to chan<- *prometheus.Desc) {
	for _, m := range Catalogue {
		to <- m.desc()
	}
}

// putter gives a metric of the catalogue a value.
type putter func(name string, value float64, labels ...string)

// Collect implements prometheus.Collector.
func (n *Node) Collect(to chan<- prometheus.Metric) {
	known := map[string]Metric{}
	for _, m := range Catalogue {
		known[m.Name] = m
	}
	n.collect(func(name string, value float64, labels ...string) {
		m := known[name]
		to <- prometheus.MustNewConstMetric(m.desc(), m.Kind, value, labels...)
	})
}

func (n *Node) collect(put putter) {
	put("culvert_faults", float64(len(n.status.Faults)))
	put("culvert_warnings", float64(len(n.status.Warnings)+n.amiss))
	if !n.status.Loaded {
		put("culvert_loaded", 0)
		return
	}
	put("culvert_loaded", 1)
	put("culvert_build_info", 1, fmt.Sprintf("%016x", n.status.Build), n.source.Version, n.status.Kernel)
	for table, rows := range n.rows {
		put("culvert_table_rows", float64(rows), table)
		put("culvert_table_max_rows", float64(n.room[table]), table)
	}
	for k, sum := range n.drops {
		put("culvert_drop_packets_total", float64(sum.packets), k.device, k.hook, k.reason)
		put("culvert_drop_bytes_total", float64(sum.bytes), k.device, k.hook, k.reason)
	}
	for _, i := range n.now.Pods {
		n.collectPod(put, i)
	}
}

func (n *Node) collectPod(put putter, i maps.Iface) {
	device := DeviceName(i.Ifindex, i)
	put("culvert_pod_info", 1, device, i.Container, i.Network, i.IfName, joined(i.Addrs))
	if t, ok := n.now.Traffic[i.Ifindex]; ok {
		if n.receives(i.Ifindex) {
			put("culvert_pod_receive_bytes_total", float64(t.RxBytes), device)
			put("culvert_pod_receive_packets_total", float64(t.RxPackets), device)
		}
		put("culvert_pod_transmit_bytes_total", float64(t.TxBytes), device)
		put("culvert_pod_transmit_packets_total", float64(t.TxPackets), device)
	}
	limit := n.now.Limits[i.Ifindex]
	if limit.Ingress > 0 {
		put("culvert_pod_limit_bytes_per_second", float64(limit.Ingress)/8, device, maps.Ingress.String())
		put("culvert_pod_shaper_drop_packets_total", float64(n.now.Shaper[i.Ifindex]), device)
	}
	if limit.Egress > 0 {
		put("culvert_pod_limit_bytes_per_second", float64(limit.Egress)/8, device, maps.Egress.String())
	}
}

func joined(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

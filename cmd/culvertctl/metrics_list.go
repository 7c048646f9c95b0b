// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-cni/culvert/maps"
)

// metric is one of docs/metrics.md, which a test holds against this list.
type metric struct {
	name   string
	kind   prometheus.ValueType
	help   string
	labels []string
}

func gauge(name, help string, labels ...string) metric {
	return metric{name, prometheus.GaugeValue, help, labels}
}

func counter(name, help string, labels ...string) metric {
	return metric{name, prometheus.CounterValue, help, labels}
}

func (m metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.help, m.labels, nil) }

var catalogue = []metric{
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
func (n *nodeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, m := range catalogue {
		to <- m.desc()
	}
}

// putter gives a metric of the catalogue a value.
type putter func(name string, value float64, labels ...string)

// Collect implements prometheus.Collector.
func (n *nodeMetrics) Collect(to chan<- prometheus.Metric) {
	known := map[string]metric{}
	for _, m := range catalogue {
		known[m.name] = m
	}
	n.collect(func(name string, value float64, labels ...string) {
		m := known[name]
		to <- prometheus.MustNewConstMetric(m.desc(), m.kind, value, labels...)
	})
}

func (n *nodeMetrics) collect(put putter) {
	put("culvert_faults", float64(len(n.status.Faults)))
	put("culvert_warnings", float64(len(n.status.Warnings)))
	if !n.status.Loaded {
		put("culvert_loaded", 0)
		return
	}
	put("culvert_loaded", 1)
	put("culvert_build_info", 1, n.status.Build, version, n.status.Kernel)
	for table, rows := range n.status.Counts {
		put("culvert_table_rows", float64(rows), table)
		put("culvert_table_max_rows", float64(n.room[table]), table)
	}
	for _, c := range n.counters {
		put("culvert_drop_packets_total", float64(c.Packets), c.Device, c.Hook, c.Reason)
		put("culvert_drop_bytes_total", float64(c.Bytes), c.Device, c.Hook, c.Reason)
	}
	for _, i := range n.now.pods {
		n.collectPod(put, i)
	}
}

func (n *nodeMetrics) collectPod(put putter, i maps.Iface) {
	device := deviceName(i.Ifindex, i)
	put("culvert_pod_info", 1, device, i.Container, i.Network, i.IfName, joined(i.Addrs))
	if t, ok := n.now.traffic[i.Ifindex]; ok {
		if n.receives(i.Ifindex) {
			put("culvert_pod_receive_bytes_total", float64(t.RxBytes), device)
			put("culvert_pod_receive_packets_total", float64(t.RxPackets), device)
		}
		put("culvert_pod_transmit_bytes_total", float64(t.TxBytes), device)
		put("culvert_pod_transmit_packets_total", float64(t.TxPackets), device)
	}
	limit := n.now.limits[i.Ifindex]
	if limit.ingress > 0 {
		put("culvert_pod_limit_bytes_per_second", float64(limit.ingress)/8, device, maps.Ingress.String())
		put("culvert_pod_shaper_drop_packets_total", float64(n.now.shaper[i.Ifindex]), device)
	}
	if limit.egress > 0 {
		put("culvert_pod_limit_bytes_per_second", float64(limit.egress)/8, device, maps.Egress.String())
	}
}

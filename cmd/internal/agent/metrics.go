// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
)

// Metrics is how the agent does, as a prometheus.Collector.
type Metrics struct {
	Agent *Agent
	// Leases are the addresses that pods hold; without it no metric tells of free ones.
	Leases func() ([]kube.Lease, error)
}

var (
	descReady   = prometheus.NewDesc("culvert_agent_ready", "1 if pods can start, as the node's condition says.", nil, nil)
	descSuccess = prometheus.NewDesc("culvert_agent_last_success_timestamp_seconds", "When the node was last made what the cluster says, without an error.", nil, nil)
	descErrors  = prometheus.NewDesc("culvert_agent_sync_errors_total", "Looks at the node that a step failed in.", []string{"step"}, nil)
	descRanges  = prometheus.NewDesc("culvert_agent_ranges", "Ranges of this node: given from, draining, or of a pool that pods name.", []string{"kind"}, nil)
	descRemotes = prometheus.NewDesc("culvert_agent_remote_ranges", "Ranges of other nodes by the way to them; node: addresses of nodes, which nothing to is masqueraded.", []string{"kind"}, nil)
	descFree    = prometheus.NewDesc("culvert_agent_free_addresses", "Addresses of this node's ranges that no pod holds.", []string{"family"}, nil)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReady, descSuccess, descErrors, descRanges, descRemotes, descFree} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	r := m.Agent.Report()
	put := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	ready := 0.0
	if r.Ready {
		ready = 1
	}
	put(descReady, prometheus.GaugeValue, ready)
	if !r.Success.IsZero() {
		put(descSuccess, prometheus.GaugeValue, float64(r.Success.Unix()))
	}
	for _, s := range steps {
		put(descErrors, prometheus.CounterValue, float64(r.Errors[string(s)]), string(s))
	}
	for kind, n := range r.Ranges {
		put(descRanges, prometheus.GaugeValue, float64(n), kind)
	}
	for kind, n := range r.Remotes {
		put(descRemotes, prometheus.GaugeValue, float64(n), kind)
	}
	if m.Leases == nil || !r.HasState {
		return
	}
	leases, err := m.Leases()
	if err != nil {
		return // the table that cannot be read is a fault already
	}
	for family, n := range free(r.State, leases) {
		put(descFree, prometheus.GaugeValue, n, family)
	}
}

// free counts by family what is left of the ranges: without the subnets' own addresses, IPv4's
// broadcast addresses, what is reserved and what is held.
func free(state kube.State, leases []kube.Lease) map[string]float64 {
	left := map[string]float64{}
	family := func(a netip.Addr) string { return map[bool]string{false: "IPv4", true: "IPv6"}[a.Is6()] }
	for _, r := range state.Ranges {
		n := math.Exp2(float64(r.Addr().BitLen()-r.Bits())) - 2 // its own and the gateway behind it
		if r.Addr().Is4() {
			n-- // broadcast
		}
		for _, reserved := range state.Reserved {
			if r.Overlaps(reserved) {
				n -= math.Exp2(float64(r.Addr().BitLen() - max(r.Bits(), reserved.Bits())))
			}
		}
		for _, l := range leases {
			if !l.Released && r.Contains(l.Addr) {
				n--
			}
		}
		left[family(r.Addr())] += max(n, 0)
	}
	return left
}

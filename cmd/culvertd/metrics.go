// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// newMetrics answers /metrics: what culvertctl metrics prints, and the agent's own. Of pods it
// says nothing that takes their namespaces, whose paths a container need not see.
func newMetrics(o *options, a *agent.Agent) http.Handler {
	look := func() ([]loader.Fault, error) {
		handle, err := netdev.Open()
		if err != nil {
			return nil, err
		}
		defer handle.Close()
		d := &podnet.Deps{Node: handle, PinPath: o.PinPath, Log: a.Log}
		if d.Datapath, err = loader.Open(loader.Options{PinPath: o.PinPath, Netlink: handle}); err != nil {
			d.Datapath = nil // which the loader tells of
		} else {
			defer d.Datapath.Close()
		}
		return podnet.Inspect(d, false)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		metrics.Scrape{Source: metrics.Source{PinPath: o.PinPath, Version: version, Amiss: look}},
		&agent.Metrics{Agent: a, Leases: newLeases(o.PinPath).list},
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

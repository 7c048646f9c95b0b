// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-cni/culvert/cmd/internal/agent"
)

// newMetrics answers /metrics: what culvertctl metrics prints, and the agent's own.
func newMetrics(_ *options, a *agent.Agent) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&agent.Metrics{Agent: a})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

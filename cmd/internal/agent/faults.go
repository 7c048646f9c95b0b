// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
)

// tellFaults says once what the cluster's objects have amiss for this node, as a pool that has
// no block left, and once that it is over. Nothing of it keeps the agent from being ready: an
// administrator, not another agent, can mend it.
func (a *Agent) tellFaults(faults []kube.Fault) {
	for _, f := range faults {
		if !slices.Contains(a.amiss, f) {
			a.Log.Warn("the cluster has a fault", "reason", f.Reason, "message", f.Message)
			a.Teller.Warn("Culvert"+f.Reason, f.Message)
		}
	}
	for _, f := range a.amiss {
		if !slices.Contains(faults, f) {
			a.Log.Info("the cluster's fault is over", "reason", f.Reason, "message", f.Message)
			a.Teller.Tell("Culvert"+f.Reason+"Over", "no longer: "+f.Message)
		}
	}
	a.amiss = faults
}

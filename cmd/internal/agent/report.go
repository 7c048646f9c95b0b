// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
)

// step is a part of a Sync that can fail by itself. Its name stands in metrics and logs.
type step string

const (
	stepCluster  step = "cluster"  // to know anything of it
	stepUplinks  step = "uplinks"  // to find them
	stepRanges   step = "ranges"   // to have one, and a way to those of others
	stepForward  step = "forward"  // to switch forwarding on
	stepTunnel   step = "tunnel"   // its device and programs
	stepRemotes  step = "remotes"  // the table
	stepRoutes   step = "routes"   // to other nodes' ranges
	stepConflist step = "conflist" // to write it
	stepReady    step = "ready"    // to start a pod: what STATUS says
	stepNode     step = "node"     // to write the node's condition
)

var steps = []step{stepCluster, stepUplinks, stepRanges, stepForward, stepTunnel, stepRemotes, stepRoutes, stepConflist, stepReady, stepNode}

// Report is how the last Sync went; metrics and /readyz read it.
type Report struct {
	Began    time.Time // the last Sync
	Success  time.Time // the last Sync without an error
	Ready    bool      // a pod can start
	Faults   map[string]string
	Errors   map[string]int // Syncs with an error, by step, since the agent began
	Ranges   map[string]int // this node's: "given", "draining", "pool"
	Remotes  map[string]int // other nodes' ranges by the way to them
	State    kube.State
	HasState bool
}

// Report gives a copy.
func (a *Agent) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.report
	r.Faults, r.Errors = maps.Clone(r.Faults), maps.Clone(r.Errors)
	r.Ranges, r.Remotes = maps.Clone(r.Ranges), maps.Clone(r.Remotes)
	return r
}

// round is one Sync.
type round struct {
	faults map[step]error
	plan   *Plan
	state  *kube.State
}

func (a *Agent) begin() *round {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Began = a.Now()
	return &round{faults: map[step]error{}}
}

// fault notes that a step went wrong, and says so.
func (r *round) fault(s step, err error) bool {
	if err != nil {
		r.faults[s] = err
	}
	return err != nil
}

func (r *round) err() error {
	var errs []error
	for _, s := range steps {
		errs = append(errs, r.faults[s])
	}
	return errors.Join(errs...)
}

// end tells what has changed, and whether the node can start pods.
func (a *Agent) end(ctx context.Context, r *round) {
	why := a.ready(r)
	a.condition(ctx, r, why)
	a.tell(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.report
	p.Ready, p.Faults = why == nil, map[string]string{}
	if p.Errors == nil {
		p.Errors = map[string]int{}
	}
	for s, err := range r.faults {
		p.Faults[string(s)] = err.Error()
		p.Errors[string(s)]++
	}
	if len(r.faults) == 0 {
		p.Success = a.Now()
	}
	if r.plan != nil {
		p.count(r.plan, r.state)
	}
}

func (p *Report) count(plan *Plan, state *kube.State) {
	p.State, p.HasState = *state, true
	p.Ranges = map[string]int{"given": len(state.Ranges), "draining": len(state.Draining), "pool": 0}
	for _, pool := range state.Pools {
		p.Ranges["pool"] += len(pool)
	}
	p.Remotes = map[string]int{"direct": 0, "tunnel": 0, "node": 0}
	for _, row := range plan.Remotes {
		p.Remotes[row.Kind.String()]++
	}
}

// ready says why no pod can start, nil if one can: what the configuration lacks, or what
// STATUS answers to it. As long as nothing is known of the cluster a configuration that an
// earlier run wrote goes on being good.
func (a *Agent) ready(r *round) error {
	if a.conf == nil {
		a.conf = a.readConf()
	}
	if a.conf != nil {
		err := a.Node.Ready(a.conf)
		r.fault(stepReady, err)
		return err
	}
	if err := r.err(); err != nil {
		return err
	}
	return errors.New("the runtime has no configuration yet")
}

// conditionAge is after what time the condition is looked at although nothing changed:
// somebody else may have written it.
const conditionAge = 5 * time.Minute

func (a *Agent) condition(ctx context.Context, r *round, why error) {
	text := "up"
	if why != nil {
		text = why.Error()
	}
	if r.state == nil || text == a.lastWhy && r.state.UID == a.lastUID && a.Now().Sub(a.lastUp) < conditionAge {
		return
	}
	if !r.fault(stepNode, a.Teller.Up(ctx, why)) {
		a.lastWhy, a.lastUID, a.lastUp = text, r.state.UID, a.Now()
	}
}

// tell says each fault once, and once that it is over.
func (a *Agent) tell(r *round) {
	if a.faults == nil {
		a.faults = map[step]string{}
	}
	for _, s := range steps {
		was, had := a.faults[s]
		err := r.faults[s]
		switch {
		case err != nil && s == stepCluster: // after each start, or there is nobody to tell
			a.Log.Debug("not known yet", "error", err)
		case err != nil && err.Error() != was:
			a.Log.Error("not done", "step", string(s), "error", err)
			a.Teller.Warn("Culvert"+title(s)+"Failed", err.Error())
			a.faults[s] = err.Error()
		case err == nil && had:
			a.Log.Info("done again", "step", string(s))
			a.Teller.Tell("Culvert"+title(s)+"Mended", fmt.Sprintf("%s: works again; it was: %s", s, was))
			delete(a.faults, s)
		}
	}
}

func title(s step) string { return string(s[0]-'a'+'A') + string(s[1:]) }

// Missing is what keeps the agent from being ready, a sentence each, in order; empty when it
// has made the node what the cluster says.
func (r Report) Missing() []string {
	var missing []string
	for _, s := range steps {
		if what, ok := r.Faults[string(s)]; ok {
			missing = append(missing, string(s)+": "+what)
		}
	}
	if len(missing) == 0 && !r.Ready {
		missing = append(missing, "nothing has been done yet")
	}
	return slices.Clip(missing)
}

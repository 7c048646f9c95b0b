// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// Status is what there is to say about a node without changing it.
type Status struct {
	Kernel   string // release
	Loaded   bool
	Build    uint64 // 0 while a load has not come to its end
	Current  bool   // Build is that of this binary
	Features maps.Features
	Uplinks  []int
	Faults   []Fault
	Warnings []Fault // nothing that keeps a pod from starting
}

// Inspect looks at everything that a pod's start needs from the node, in a few
// milliseconds, and repairs nothing. A datapath that is not loaded yet is no fault.
func Inspect(opts Options) Status {
	opts = opts.withDefaults()
	s := Status{Kernel: kernelRelease()}
	note := func(err error) {
		var fault Fault
		if err != nil && !errors.As(err, &fault) {
			fault = Fault{Kind: err, What: err.Error()}
		}
		if err != nil {
			s.Faults = append(s.Faults, fault)
		}
	}
	note(checkKernel())
	d, err := Open(opts)
	var fault Fault
	switch {
	case errors.As(err, &fault) && errors.Is(err, ErrOtherLayout):
		s.Warnings = append(s.Warnings, fault) // the next ADD mends that
		return s
	case errors.Is(err, ErrNotLoaded):
		return s
	case err != nil:
		note(err)
		return s
	}
	defer d.Close()
	s.Loaded = true
	config, err := d.Maps.Config.Get()
	note(err)
	if err != nil {
		return s
	}
	s.Build, s.Features, s.Current = config.Build, config.Features, config.Build == bpf.Build()
	s.Warnings = append(s.Warnings, otherBuild(s.Build, s.Current)...)
	// Where it has come since, the next ADD reloads the programs: nothing to keep pods for.
	if config.Features&maps.FeatureConntrack == 0 && !conntrackAppeared() {
		note(noConntrack(s.Kernel))
	}
	if config.Features&maps.FeatureSharedPorts != 0 {
		s.Warnings = append(s.Warnings, SharedPorts())
	}
	if s.Current && config.Features&maps.FeatureTBF == 0 && !exists("/sys/module/sch_tbf") { // another build need not have looked
		s.Warnings = append(s.Warnings, NoShaper())
	}
	if opts.Attach == AttachTCX && config.Features&maps.FeatureTCX == 0 {
		note(noTCX())
	}
	s.Uplinks, err = d.Uplinks()
	note(err)
	return s
}

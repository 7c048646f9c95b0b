// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

// ensure opens the datapath for verbs that repair. Where its tables had to be made anew, as
// after a loss of bpffs that no program outlived, the pods that live get rows first.
func (s *session) ensure() (*loader.Datapath, error) {
	dp, err := loader.Ensure(s.options())
	if err != nil || !dp.Fresh() {
		return dp, err
	}
	if _, err := s.deps(dp).Rebuild(); err != nil {
		s.log.Error("rows are not rebuilt", "error", err)
	}
	return dp, nil
}

// repair is what GC does of `culvertctl reconcile`: everything, knowing the uplinks of its
// own network alone. It is no reason to fail.
func (s *session) repair(dp *loader.Datapath) {
	known := func(network string) ([]string, bool) { return s.conf.uplinks, network == s.conf.name }
	if _, err := podnet.Reconcile(s.deps(dp), known, true); err != nil {
		s.log.Error("repair is not complete", "error", err)
	}
}

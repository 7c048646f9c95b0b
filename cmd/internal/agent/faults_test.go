// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
)

func TestFaultsOfTheClusterAreToldOnce(t *testing.T) {
	a, cluster, _, teller := newAgent(t)
	sync := func(faults ...kube.Fault) {
		t.Helper()
		cluster.Now.Faults = faults
		for range 2 {
			if err := a.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	sync(kube.Fault{Reason: "PoolExhausted", Message: "pool gold: no block is left"})
	sync()
	want := []string{"Warning CulvertPoolExhausted", "Normal CulvertPoolExhaustedOver"}
	if !slices.Equal(teller.Said, want) {
		t.Errorf("told: %q\nwant: %q", teller.Said, want)
	}
}

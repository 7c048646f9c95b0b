// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// L1: whichever step of a chained ADD fails, or is the last one before a kill and a DEL,
// the other plugin's veth is left as it was.
func TestPrivilegedChainedUndone(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	node.IP(t, fmt.Sprintf("link add foreign0 type veth peer name eth0 netns %s", pod.Path()), "link set foreign0 up")
	pod.IP(t, "link set eth0 up", "addr add 10.244.0.2/32 dev eth0", "addr add fd00:244::2/128 dev eth0 nodad")
	state := func() string {
		return node.MustRun(t, "", "tc", "qdisc", "show", "dev", "foreign0") + pod.MustRun(t, "", "tc", "qdisc", "show", "dev", "eth0")
	}
	broken := errors.New("broken")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		spec.Prev = &current.Result{}
		if err := json.Unmarshal([]byte(`{"ips":[{"address":"10.244.0.2/32"},{"address":"fd00:244::2/128"}]}`), spec.Prev); err != nil {
			return err
		}
		before := state()
		for n := range len((&setup{}).chainedSteps()) + 1 {
			for _, killed := range []bool{false, true} {
				s, err := newSetup(d, spec)
				if err != nil {
					return err
				}
				s.kept = maps.PodChained
				steps := s.chainedSteps()[:n:n]
				after := fmt.Sprintf("step %d, killed %v", n, killed)
				if killed {
					if err := s.run(context.Background(), steps); err != nil {
						t.Errorf("%s: %v", after, err)
					}
					if err := Teardown(context.Background(), d, spec.Owner); err != nil {
						t.Errorf("%s: DEL: %v", after, err)
					}
				} else if err := s.run(context.Background(), append(steps, step{"break", func(context.Context) error { return broken }})); !errors.Is(err, broken) || strings.Contains(err.Error(), "undo") {
					t.Errorf("%s: got %v, want the step's error alone", after, err)
				}
				if got := state(); got != before {
					t.Errorf("%s: queues and filters are\n%s, were\n%s", after, got, before)
				}
				noRowsLeft(t, after, d, node)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

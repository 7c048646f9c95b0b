// SPDX-License-Identifier: Apache-2.0

package maps_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestPrivilegedFlows(t *testing.T) {
	dir := netns.PinPath(t)
	set := mapstest.Pin(t, dir)
	client, node, pod := addr("192.0.2.9"), addr("192.0.2.1"), addr("10.1.2.3")
	key := bpf.DatapathTuple{Src: client, Dst: node, Sport: 40000, Dport: 8080, Proto: 6}
	value := bpf.DatapathFlow{
		Src: client, Dst: pod, Sport: 40000, Dport: 80,
		Action:        bpf.DatapathFlowActionFLOW_TO_POD,
		Flags:         bpf.DatapathFlowFlagFLOW_TRANSLATE | bpf.DatapathFlowFlagFLOW_HOSTPORT,
		State:         bpf.DatapathFlowStateFLOW_ANSWERED,
		DstGeneration: 7, SeenNs: 3e9,
	}
	mapstest.Put(t, dir, bpf.DatapathMapFlows, &key, &value)
	want := maps.Flow{
		Key:    maps.Tuple{Src: netip.MustParseAddrPort("192.0.2.9:40000"), Dst: netip.MustParseAddrPort("192.0.2.1:8080"), Proto: 6},
		To:     maps.Tuple{Src: netip.MustParseAddrPort("192.0.2.9:40000"), Dst: netip.MustParseAddrPort("10.1.2.3:80"), Proto: 6},
		Action: maps.FlowToPod, Flags: 5, State: 1, DstGeneration: 7, Seen: 3 * time.Second,
	}
	for _, table := range []struct {
		name     string
		flows    *maps.Flows
		halfOpen bool
	}{{bpf.DatapathMapFlows, set.Flows, false}, {bpf.DatapathMapHalfopen, set.Halfopen, true}} {
		mapstest.Put(t, dir, table.name, &key, &value)
		got, err := maps.Collect(table.flows.All())
		want.HalfOpen = table.halfOpen
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, %v, want %+v", table.name, got, err, want)
		}
	}
	if got := want.Flags.String() + " " + want.State.String() + " " + want.Action.String(); got != "translate,hostport answered to_pod" {
		t.Errorf("spelled %q", got)
	}
	fragment := bpf.DatapathFragmentKey{Src: client, Dst: node, Id: 99, Proto: 17}
	mapstest.Put(t, dir, bpf.DatapathMapFragments, &fragment, &bpf.DatapathFragment{Tuple: key, SeenNs: 1e9})
	fragments, err := maps.Collect(set.Fragments.All())
	if err != nil || len(fragments) != 1 || fragments[0].ID != 99 || fragments[0].Tuple != want.Key {
		t.Errorf("fragments: %+v, %v", fragments, err)
	}
}

func TestGenerationsOfFlow(t *testing.T) {
	live := maps.Generations{1: true, 2: true}
	for _, c := range []struct {
		src, dst uint64
		want     bool
	}{{1, 2, true}, {0, 1, true}, {2, 0, true}, {0, 3, false}, {1, 3, false}, {3, 1, false}, {0, 0, false}} {
		if got := live.Flow(maps.Flow{SrcGeneration: c.src, DstGeneration: c.dst}); got != c.want {
			t.Errorf("flow of %d and %d live: %v", c.src, c.dst, got)
		}
	}
}

func addr(s string) bpf.DatapathAddr {
	return bpf.DatapathAddr{Ip: netip.MustParseAddr(s).As16()}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/maps/mapstest"
)

// noDevice is an index that no device of this machine has.
const noDevice = 1 << 30

// dropped makes the pod of filled, and a device that is gone, drop packets.
func dropped(t *testing.T) (pinPath string) {
	t.Helper()
	pinPath = filled(t)
	put := func(ifindex uint32, hook bpf.DatapathHook, reason bpf.DatapathDropReason, packets uint64) {
		cpus := make([]bpf.DatapathCounter, ebpf.MustPossibleCPU())
		cpus[0] = bpf.DatapathCounter{Packets: packets, Bytes: 100 * packets}
		mapstest.Put(t, filepath.Join(pinPath, "v1", "maps"), bpf.DatapathMapCounters,
			&bpf.DatapathCounterKey{Ifindex: ifindex, Hook: hook, Reason: reason}, cpus)
	}
	put(5, bpf.DatapathHookHOOK_FROM_POD, bpf.DatapathDropReasonDROP_SOURCE, 3)
	put(5, bpf.DatapathHookHOOK_FROM_POD, bpf.DatapathDropReasonDROP_LOOPBACK, 4)
	put(5, bpf.DatapathHookHOOK_TO_POD, bpf.DatapathDropReasonDROP_NO_ROOM, 0)
	put(noDevice, bpf.DatapathHookHOOK_FROM_UPLINK, bpf.DatapathDropReasonDROP_LOOPBACK, 5)
	return pinPath
}

func TestPrivilegedO2Counters(t *testing.T) {
	pinPath := dropped(t)
	for args, want := range map[string]string{
		"": `
CONTAINER      IFNAME  DEVICE      HOOK         REASON    PACKETS  BYTES
-              -       1073741824  from_uplink  loopback  5        500
0123456789abc  eth0    veth5       from_pod     loopback  4        400
0123456789abc  eth0    veth5       from_pod     source    3        300
`,
		"--pod 10.1.2.3 --by pod": `
CONTAINER      IFNAME  DEVICE  PACKETS  BYTES
0123456789abc  eth0    veth5   7        700
`,
		"--by reason": `
REASON    PACKETS  BYTES
loopback  9        900
source    3        300
`,
		"--by hook,reason": `
HOOK         REASON    PACKETS  BYTES
from_pod     loopback  4        400
from_pod     source    3        300
from_uplink  loopback  5        500
`,
		"--by reason -o yaml": `
- bytes: 900
  packets: 9
  reason: loopback
- bytes: 300
  packets: 3
  reason: source
`,
	} {
		out, err := run(t, append([]string{"counters", "--pin-path", pinPath}, strings.Fields(args)...)...)
		if err != nil || out != want[1:] {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	for args, want := range map[string]string{"--pod nobody": "no pod is called", "--by cpu": "use pod, hook, reason"} {
		if out, err := run(t, append([]string{"counters", "--pin-path", pinPath}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// The help tells what each reason means.
func TestCountersHelp(t *testing.T) {
	for r := bpf.DatapathDropReasonDROP_SOURCE; r < bpf.DatapathDropReasonDROP_REASON_MAX; r++ {
		if name := maps.DropReason(r).String(); !strings.Contains(countersHelp, "\n    "+name+" ") {
			t.Errorf("culvertctl counters --help does not say what %s means", name)
		}
	}
}

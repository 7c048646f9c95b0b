// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestPrivilegedDepart(t *testing.T) {
	netns.RequireRoot(t)
	const rate, size, horizon = 10e6, 1000, 50 * time.Millisecond
	e := &edt{}
	defer e.close()
	// Without a device, BPF_PROG_TEST_RUN takes lo, which has index 1.
	if err := e.load(1, bpf.DatapathDirectionTO_POD, rate, horizon); err != nil {
		t.Fatal(err)
	}
	send := func() uint32 {
		t.Helper()
		// With an empty struct __sk_buff the kernel sets wire_len to the length, without one to 0.
		verdict, err := e.prog.Run(&ebpf.RunOptions{Data: make([]byte, size), Context: make([]byte, 192)})
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	clock := func() uint64 {
		t.Helper()
		var row bpf.DatapathLimit
		if err := e.rows.Lookup(&bpf.DatapathLimitKey{Ifindex: 1, Direction: bpf.DatapathDirectionTO_POD}, &row); err != nil {
			t.Fatal(err)
		}
		return row.ClockNs
	}
	if v := send(); v != pass {
		t.Fatalf("the first packet: verdict %d", v)
	}
	// A packet takes 800 us, so some 62 fit into the horizon, and those that leave while we
	// send more.
	const cost = uint64(size * 8 * time.Second / rate)
	before, passed, dropped := clock(), uint64(0), 0
	for range 200 {
		if send() == pass {
			passed++
		} else {
			dropped++
		}
	}
	if dropped == 0 || passed < 50 {
		t.Errorf("%d packets passed and %d were dropped, with a horizon of 62", passed, dropped)
	}
	if got := clock() - before; got != passed*cost {
		t.Errorf("the clock went on by %d ns for %d packets of %d ns", got, passed, cost)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/test/netns"
)

// candidate is a way to hold a rate.
type candidate struct {
	name    string
	codel   bool          // TBF's child is fq_codel, not its own queue
	horizon time.Duration // of EDT; 0: TBF
}

// candidates: the second is what culvert sets where the kernel has fq_codel; the first what it
// set elsewhere, before its queue had room for most of another packet.
var candidates = []candidate{
	{name: "tbf bfifo"},
	{name: today, codel: true},
	{name: "edt 10ms", horizon: 10 * time.Millisecond},
	{name: "edt 50ms", horizon: 50 * time.Millisecond},
}

const today = "tbf fq_codel"

// tbf is culvert's shaper, when this was measured, for a rate without a burst of its own and
// an MTU of 1500, in bytes. What it is now: cmd/internal/podnet/limit.go.
func tbf(rate uint64) (burst, queue uint64) {
	const packet = 1514
	burst = max(rate/8/250, 2*packet)
	if rate >= 100e6 {
		burst = max(burst, 68<<10)
	}
	return burst, max(rate/8/100, burst+packet, 8*packet)
}

// fqCodel is culvert's child of a TBF, as it is there: microseconds and bytes.
func fqCodel(rate uint64) (target, interval, memory uint64) {
	const packet, overhead = 1514, 2 << 10
	target = max(5000, packet*8*1_000_000/rate*5/4)
	return target, max(100_000, 2*target), min(max(2*rate/8/10, 32*(packet+overhead)), 32<<20)
}

// qdiscs are the lines of tc(8) that make the candidate on a device.
func (k candidate) qdiscs(dev string, rate uint64) []string {
	if k.horizon > 0 {
		// The program's horizon is the limit; fq's is there for what a pod might write.
		return []string{fmt.Sprintf("qdisc replace dev %s root handle 43: fq limit 20000 flow_limit 20000 horizon %dms horizon_drop",
			dev, 2*k.horizon.Milliseconds()+60)}
	}
	burst, queue := tbf(rate)
	lines := []string{fmt.Sprintf("qdisc replace dev %s root handle 43: tbf rate %dbit burst %db limit %db", dev, rate, burst, queue)}
	if k.codel {
		target, interval, memory := fqCodel(rate)
		lines = append(lines, fmt.Sprintf("qdisc replace dev %s parent 43:1 handle 44: fq_codel noecn target %dus interval %dus memory_limit %d",
			dev, target, interval, memory))
	}
	return lines
}

// set makes the candidate the shaper of dev, and returns what takes it away.
func (k candidate) set(ns *netns.NS, dev string, ifindex int, c cell) (undo func(), err error) {
	if err := tc(ns, k.qdiscs(dev, c.rate)...); err != nil {
		return nil, err
	}
	gone := func() { _ = tc(ns, "qdisc del dev "+dev+" root") }
	if k.horizon == 0 {
		return gone, nil
	}
	d := bpf.DatapathDirectionTO_POD
	if c.fromPod {
		d = bpf.DatapathDirectionFROM_POD
	}
	var e *edt
	if err := ns.Do(func() (err error) { e, err = attach(ifindex, d, c.rate, k.horizon); return err }); err != nil {
		gone()
		return nil, err
	}
	return func() { gone(); e.close() }, nil
}

// supported tells, in a sentence, what this kernel lacks.
func supported() error {
	ns, err := netns.TryNew("trial")
	if err != nil {
		return err
	}
	defer ns.Close()
	for _, kind := range []string{"fq", "fq_codel", "tbf rate 1mbit burst 5kb limit 5kb"} {
		name, _, _ := strings.Cut(kind, " ")
		if err := tc(ns, "qdisc replace dev lo root "+kind); err != nil {
			return fmt.Errorf("kernel %s has no qdisc %s (module sch_%s), so there is nothing to compare here; "+
				"run it in a virtual machine: test/lab/vm-run.sh 6.12 (%w)", netns.Kernel(), name, name, err)
		}
		if err := tc(ns, "qdisc del dev lo root"); err != nil {
			return err
		}
	}
	return nil
}

// tc runs lines of tc(8) in a namespace.
func tc(ns *netns.NS, lines ...string) error {
	_, err := ns.Run(strings.Join(lines, "\n")+"\n", "tc", "-batch", "-")
	return err
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Clock is how the programs tell the time: Base plus Tick for each of the kernel's jiffies,
// in ns, is CLOCK_MONOTONIC to within two ticks.
type Clock struct{ Tick, Base uint64 }

// ReadClock looks at the running kernel. Its tick is the resolution of the coarse clocks;
// it counts jiffies from five minutes before zero of 32 bits.
func ReadClock() (Clock, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return Clock{}, fmt.Errorf("read tick: %w", err)
	}
	tick := uint64(res.Nano())
	low, now, err := sameMoment(tick)
	if err != nil {
		return Clock{}, err
	}
	const second, start = 1_000_000_000, 300
	about := 1<<32 - start*second/tick + now/tick
	exact := about + uint64(int64(int32(low-uint32(about)))) // the one that ends like it
	return Clock{Tick: tick, Base: now - exact*tick}, nil
}

// sameMoment is the low 32 bits of the kernel's jiffies and the coarse clock in ns, read
// while neither of them ticked; on a machine so starved that this never happens, while they
// ticked least.
func sameMoment(tick uint64) (low uint32, now uint64, err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()},
	})
	if err != nil {
		return 0, 0, fmt.Errorf("load a program to read jiffies: %w", err)
	}
	defer prog.Close()
	least := ^uint64(0)
	for range 100 {
		before, err := coarse()
		if err != nil {
			return 0, 0, err
		}
		jiffies, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		if err != nil {
			return 0, 0, fmt.Errorf("read jiffies: %w", err)
		}
		after, err := coarse()
		if err != nil {
			return 0, 0, err
		}
		if took := after - before; took < least {
			least, low, now = took, jiffies, after
		}
		if least < tick {
			break
		}
	}
	return low, now, nil
}

func coarse() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

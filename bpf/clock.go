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
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return Clock{}, fmt.Errorf("read tick: %w", err)
	}
	low, err := jiffies()
	if err != nil {
		return Clock{}, fmt.Errorf("read jiffies: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return Clock{}, fmt.Errorf("read clock: %w", err)
	}
	c := Clock{Tick: uint64(tick.Nano())}
	const second, start = 1_000_000_000, 300
	about := 1<<32 - start*second/c.Tick + uint64(now.Nano())/c.Tick
	exact := about + uint64(int64(int32(low-uint32(about)))) // the one that ends like it
	c.Base = uint64(now.Nano()) - exact*c.Tick
	return c, nil
}

// jiffies are the low 32 bits of the kernel's count.
func jiffies() (uint32, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()},
	})
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	return prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
}

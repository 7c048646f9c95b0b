// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"os"
	"structs"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Verdicts, by the values that clsact and tcx share.
const (
	Unspec   int32 = -1
	Shot     int32 = 2
	Redirect int32 = 7
)

// VerifyChecksumComplete makes the kernel feign a device that summed up the packet, and
// fail the run if the sum is wrong afterwards (6.17; BPF_F_TEST_SKB_CHECKSUM_COMPLETE).
const VerifyChecksumComplete = 1 << 2

// foreignMark is in the mark and cb of every packet that is run, and has to stay: the
// datapath keeps nothing there.
const foreignMark = 0x5eed

// Context is struct __sk_buff; a run takes Mark, Ifindex, Cb and the GSO fields, and
// refuses the rest.
type Context struct {
	_              structs.HostLayout
	Len            uint32
	PktType        uint32
	Mark           uint32
	QueueMapping   uint32
	Protocol       uint32
	VlanPresent    uint32
	VlanTci        uint32
	VlanProto      uint32
	Priority       uint32
	IngressIfindex uint32
	Ifindex        uint32
	TcIndex        uint32
	Cb             [5]uint32
	Hash           uint32
	TcClassid      uint32
	Data           uint32
	DataEnd        uint32
	NapiID         uint32
	Family         uint32
	Addrs          [10]uint32
	RemotePort     uint32
	LocalPort      uint32
	DataMeta       uint32
	FlowKeys       uint64
	Tstamp         uint64
	WireLen        uint32
	GsoSegs        uint32
	Sk             uint64
	GsoSize        uint32
	TstampType     uint32
	Hwtstamp       uint64
}

// In is a packet at a hook.
type In struct {
	Program string
	Device  int // ifindex
	Frame   []byte
	GSOSize int // bytes of payload a segment; 0: not GSO
	GSOSegs int
	// What a run takes from another program alone (see watcher):
	Stamp  uint16 // skb->tc_index
	Tagged bool   // the device took off a VLAN tag of number 0
	Flags  uint32 // of the run
}

// Out is what became of it.
type Out struct {
	Verdict int32
	Frame   []byte
	Began   uint64 // clock of the rows, at the least before and at the most after
	Ended   uint64
}

func (in In) context() Context {
	ctx := Context{Ifindex: uint32(in.Device), GsoSize: uint32(in.GSOSize), GsoSegs: uint32(in.GSOSegs), Mark: foreignMark}
	ctx.Cb[cbStamp], ctx.Cb[4] = uint32(in.Stamp), foreignMark
	if in.Tagged {
		ctx.Cb[cbTag] = 1
	}
	return ctx
}

// Run runs a program of the object on a packet.
func (n *Node) Run(tb testing.TB, in In) Out {
	tb.Helper()
	out, err := n.TryRun(tb, in)
	if err != nil {
		tb.Fatalf("run %s: %v", in.Program, err)
	}
	return out
}

// TryRun is Run where the kernel may refuse.
func (n *Node) TryRun(tb testing.TB, in In) (Out, error) {
	tb.Helper()
	prog := n.Object.Programs[in.Program]
	if in.Stamp != 0 || in.Tagged {
		if err := n.Object.watcher.next.Put(uint32(0), prog); err != nil {
			tb.Fatalf("enter %s: %v", in.Program, err)
		}
		prog = n.Object.watcher.prog
	}
	ctx := in.context()
	var after Context
	opts := ebpf.RunOptions{Data: in.Frame, DataOut: make([]byte, len(in.Frame)+64), Context: &ctx,
		ContextOut: &after, Flags: in.Flags}
	var out Out
	var failed error
	n.Do(tb, func() error {
		out.Began = Now() - slack
		verdict, err := prog.Run(&opts)
		out.Verdict, failed, out.Ended = int32(verdict), err, Now()+slack
		return nil
	})
	if failed != nil {
		return out, failed
	}
	if after.Mark != foreignMark || after.Cb[4] != foreignMark {
		tb.Errorf("run %s: mark %#x, cb %#x: somebody else's value was overwritten", in.Program, after.Mark, after.Cb)
	}
	out.Frame = opts.DataOut
	return out, nil
}

// slack is how far the programs' clock may be from Now: two ticks of the slowest kernel. An
// emulated machine that waits for a processor loses ticks, and the programs count ticks.
var slack = func() uint64 {
	if os.Getenv("VM_KERNEL") != "" {
		return uint64(300 * time.Millisecond)
	}
	return uint64(20 * time.Millisecond)
}()

// Now is the clock of the rows, as coarse as the one the datapath reads.
func Now() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		panic(err)
	}
	return uint64(ts.Nano())
}

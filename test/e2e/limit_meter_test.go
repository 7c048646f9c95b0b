// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// meter is a program behind ours that counts the bytes a wire would carry: what a device
// would cut repeats its headers. It reads what the packet holds and its segment size,
// not what the sender said of the number of segments.
type meter struct {
	bytes *ebpf.Map
	prog  *ebpf.Program
}

// The stack's packets may pass a second meter, which leaves out what the first marked.
const (
	noMark  = 0
	counted = 0xb5
)

// Offsets in struct __sk_buff.
const (
	skbLen, skbMark, skbGSOSize = 0, 8, 176
)

// meterProgram counts and returns TC_ACT_UNSPEC. What has the mark skip is left out; the
// others get the mark set.
func meterProgram(bytes *ebpf.Map, skip, set int32) asm.Instructions {
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, skbMark, asm.Word),
	}
	if skip != noMark {
		ins = append(ins, asm.JEq.Imm(asm.R1, skip, "out"))
	}
	if set != noMark {
		ins = append(ins, asm.Mov.Imm(asm.R1, set), asm.StoreMem(asm.R6, skbMark, asm.R1, asm.Word))
	}
	return append(ins,
		asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, skbGSOSize, asm.Word),
		asm.JEq.Imm(asm.R8, 0, "count"),
		// R9: headers of each segment.
		asm.Mov.Imm(asm.R9, 14+40),
		asm.LoadAbs(12, asm.Half),
		asm.JEq.Imm(asm.R0, unix.ETH_P_IPV6, "six"),
		asm.Mov.Imm(asm.R9, 14+20),
		asm.LoadAbs(14+9, asm.Byte),
		asm.Ja.Label("transport"),
		asm.LoadAbs(14+6, asm.Byte).WithSymbol("six"),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, "udp").WithSymbol("transport"),
		asm.LoadInd(asm.R0, asm.R9, 12, asm.Byte), // TCP's length in words
		asm.RSh.Imm(asm.R0, 4),
		asm.LSh.Imm(asm.R0, 2),
		asm.Add.Reg(asm.R9, asm.R0),
		asm.Ja.Label("segments"),
		asm.Add.Imm(asm.R9, 8).WithSymbol("udp"),
		// len += (ceil((len - headers) / size) - 1) * headers
		asm.Mov.Reg(asm.R1, asm.R7).WithSymbol("segments"),
		asm.Sub.Reg(asm.R1, asm.R9),
		asm.Sub.Imm(asm.R1, 1),
		asm.Div.Reg(asm.R1, asm.R8),
		asm.Mul.Reg(asm.R1, asm.R9),
		asm.Add.Reg(asm.R7, asm.R1),
		asm.StoreImm(asm.R10, -4, 0, asm.Word).WithSymbol("count"),
		asm.LoadMapPtr(asm.R1, bytes.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreXAdd(asm.R0, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	)
}

// newMeter is a meter that hangs nowhere yet; skip and set are marks.
func newMeter(t *testing.T, skip, set int32) *meter {
	t.Helper()
	m := &meter{}
	var err error
	if m.bytes, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.bytes.Close() })
	m.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "meter", Type: ebpf.SchedCLS, License: "GPL", Instructions: meterProgram(m.bytes, skip, set)})
	if err != nil {
		t.Fatalf("load meter: %v", err)
	}
	t.Cleanup(func() { _ = m.prog.Close() })
	return m
}

// hang puts the meter behind all others on a hook of a namespace's device, which stays
// there as long as the device.
func (m *meter) hang(t *testing.T, ns *netns.NS, dev string, egress bool) *meter {
	t.Helper()
	index := devices(t, ns)[dev].Index
	h := hook{dev: dev, egress: egress}
	err := ns.Do(func() error {
		qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
		if err := netlink.QdiscAdd(qdisc); err != nil && err != unix.EEXIST {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: h.parent(), Handle: 1, Priority: 65000, Protocol: unix.ETH_P_ALL},
			Fd:          m.prog.FD(), Name: "meter", DirectAction: true,
		})
	})
	if err != nil {
		t.Fatalf("hang meter on %s of %s: %v", h, ns.Name, err)
	}
	return m
}

// total is the bytes so far.
func (m *meter) total() (n uint64) {
	_ = m.bytes.Lookup(uint32(0), &n)
	return n
}

// sample is what a counter said at some moment between two.
type sample struct {
	from, to time.Time
	bytes    uint64
}

// record reads a counter every 10 ms.
type record struct {
	samples []sample
	quit    chan struct{}
	once    sync.Once
	busy    sync.WaitGroup
}

func watch(total func() uint64) *record {
	r := &record{quit: make(chan struct{})}
	read := func() {
		s := sample{from: time.Now()}
		s.bytes = total()
		s.to = time.Now()
		r.samples = append(r.samples, s)
	}
	read()
	r.busy.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.quit:
				read()
				return
			case <-tick.C:
				read()
			}
		}
	})
	return r
}

// stop ends the record; idempotent.
func (r *record) stop() { r.once.Do(func() { close(r.quit); r.busy.Wait() }) }

// most is the highest rate in bit/s over any window of that length or a little longer,
// by the outer edges of its samples.
func (r *record) most(window time.Duration) (rate float64, err error) {
	r.stop()
	j, windows := 0, 0
	for _, s := range r.samples {
		for j < len(r.samples) && r.samples[j].from.Sub(s.to) < window {
			j++
		}
		if j == len(r.samples) {
			break
		}
		windows++
		rate = max(rate, float64(r.samples[j].bytes-s.bytes)*8/r.samples[j].to.Sub(s.from).Seconds())
	}
	if windows == 0 {
		return 0, fmt.Errorf("no window of %v in %d samples", window, len(r.samples))
	}
	return rate, nil
}

// received is a device's own count of bytes, which has the headers of what is still to be
// cut once.
func received(t *testing.T, ns *netns.NS, dev string) uint64 {
	t.Helper()
	return deviceCounts(t, ns, dev)[0]
}

func transmitted(t *testing.T, ns *netns.NS, dev string) uint64 {
	t.Helper()
	return deviceCounts(t, ns, dev)[1]
}

// deviceCounts are the bytes that a device has received and transmitted.
func deviceCounts(t *testing.T, ns *netns.NS, dev string) (bytes [2]uint64) {
	t.Helper()
	var text []byte
	err := ns.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/dev"); return err })
	for line := range strings.Lines(string(text)) {
		name, counts, ok := strings.Cut(strings.TrimSpace(line), ":")
		if fields := strings.Fields(counts); ok && name == dev && len(fields) > 8 {
			for i, field := range []string{fields[0], fields[8]} {
				bytes[i], _ = strconv.ParseUint(field, 10, 64)
			}
			return bytes
		}
	}
	t.Errorf("read counters of %s: it is not in /proc/net/dev (%v)", dev, err)
	return bytes
}

// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

// setting is a number from the environment.
func setting(tb testing.TB, name string, otherwise uint64) uint64 {
	tb.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		tb.Fatalf("read %s: %v", name, err)
	}
	return n
}

// defaultPackets take half a minute, and an hour where the machine is an emulated one.
func defaultPackets() uint64 {
	if os.Getenv("VM_KERNEL") != "" {
		return 20_000
	}
	return 1_000_000
}

// fewer is how many of n random cases an emulated machine is given.
func fewer(n int) int {
	if os.Getenv("VM_KERNEL") != "" {
		return n / 5
	}
	return n
}

const (
	roundPackets = 4000
	roundFlows   = 150
)

// tally says what became of a run's packets, so that a run that tried nothing shows.
type tally struct {
	packets, refused int
	verdicts         map[model.Verdict]int
	rewritten        int
}

func newTally() *tally { return &tally{verdicts: map[model.Verdict]int{}} }

// Every verdict, byte, row and counter is what the model says, for as many random packets
// as CULVERT_FUZZ_PACKETS says, made from CULVERT_FUZZ_SEED.
func TestPrivilegedModel(t *testing.T) {
	count := int(setting(t, "CULVERT_FUZZ_PACKETS", defaultPackets()))
	seed := setting(t, "CULVERT_FUZZ_SEED", 1)
	t.Logf("CULVERT_FUZZ_SEED=%d CULVERT_FUZZ_PACKETS=%d", seed, count)
	s := newStage(t)
	sum := newTally()
	for round := uint64(0); sum.packets < count; round++ {
		if err := s.round(seed, round, sum); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
	}
	t.Logf("%d packets: verdicts %v, %d rewritten, %d refused by the kernel (CHECKSUM_COMPLETE: %v)",
		sum.packets, sum.verdicts, sum.rewritten, sum.refused, s.complete)
	if sum.verdicts[model.Redirect] < count/10 || sum.verdicts[model.Shot] == 0 || sum.refused > count/20 {
		t.Error("the packets are not what they should be")
	}
}

// round runs packets on freshly dealt tables. When the tables are wrong at the end, it
// runs ever fewer of them, to say which packet did it.
func (s *stage) round(seed, number uint64, sum *tally) error {
	err := s.play(seed, number, roundPackets, sum)
	if err == nil {
		return nil
	}
	good, bad := 0, roundPackets
	for bad-good > 1 {
		half := (good + bad) / 2
		if again := s.play(seed, number, half, newTally()); again != nil {
			bad, err = half, again
		} else {
			good = half
		}
	}
	return fmt.Errorf("of %d packets the last one: %w", bad, err)
}

// errLate: the rows have become older in the middle of a round.
var errLate = errors.New("the round took too long for its rows")

func (s *stage) play(seed, number uint64, packets int, sum *tally) error {
	for {
		round := newTally()
		err := s.playOnce(rand.New(rand.NewPCG(seed, number)), packets, round)
		if errors.Is(err, errLate) || errors.Is(err, model.ErrUnsure) {
			continue
		}
		sum.packets += round.packets
		sum.refused += round.refused
		sum.rewritten += round.rewritten
		for v, n := range round.verdicts {
			sum.verdicts[v] += n
		}
		return err
	}
}

func (s *stage) playOnce(r *rand.Rand, packets int, sum *tally) (err error) {
	s.deal(r, roundFlows)
	m := newMaker(s, r)
	s.Do(s, func() error {
		for range packets {
			into, in := m.next()
			if err = s.both(into, in, sum); err != nil {
				err = fmt.Errorf("%s on device %d, gso %d: %w\n%s", in.Program, in.Device, in.GSOSize, err, hex.Dump(in.Frame))
				return nil
			}
		}
		return nil
	})
	if err == nil {
		if err = s.compare(); err != nil {
			err = fmt.Errorf("%w\n%s", err, hex.Dump(m.frame))
		}
	}
	if s.late() {
		return errLate
	}
	return err
}

// late: rows may be older than the model takes them for.
func (s *stage) late() bool { return packet.Now()-s.began > uint64(roundTime) }

// both runs a packet and asks the model.
func (s *stage) both(into model.In, in packet.In, sum *tally) error {
	sum.packets++
	into.Early = packet.Now() - clockSlack
	verdict, frame, err := s.runner.Run(in)
	into.Late = packet.Now() + clockSlack
	if errors.Is(err, unix.EINVAL) && len(in.Frame) < packet.EthLen+40 {
		sum.refused++
		return nil
	}
	if err != nil {
		return err
	}
	want := s.Packet(into)
	sum.verdicts[want.Verdict]++
	if s.Fault != nil {
		return s.Fault
	}
	if verdict != int32(want.Verdict) {
		return fmt.Errorf("verdict: got %d, want %d", verdict, want.Verdict)
	}
	if want.Verdict == model.Shot {
		return nil
	}
	if !bytes.Equal(in.Frame, frame) {
		sum.rewritten++
	}
	return sameFrame(frame, want, packet.Verify(in.Frame) == nil)
}

// sameFrame compares all bytes; a frame that was right is verified besides.
func sameFrame(frame []byte, want model.Out, right bool) error {
	if want.Any != 0 {
		copy(want.Frame[want.Any:], frame[want.Any:want.Any+4])
	}
	if bytes.Equal(frame, want.Frame) {
		if right {
			return packet.Verify(frame)
		}
		return nil
	}
	for _, at := range want.Loose {
		if at == 0 || at+2 > len(frame) {
			continue
		}
		got, field := [2]byte(frame[at:]), want.Frame[at:at+2]
		zero, ones := [2]byte{}, [2]byte{0xff, 0xff}
		if got == zero && [2]byte(field) == ones || got == ones && [2]byte(field) == zero {
			copy(field, got[:])
		}
	}
	if !bytes.Equal(frame, want.Frame) {
		return fmt.Errorf("bytes: got\n%swant\n%scame", hex.Dump(frame), hex.Dump(want.Frame))
	}
	return nil
}

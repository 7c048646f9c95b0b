// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/culvert-cni/culvert/test/packet"
	"github.com/culvert-cni/culvert/test/packet/model"
)

// FuzzPrivilegedTranslate: whatever bytes come by whichever hook, the datapath makes of
// them what the model does. `make fuzz` goes on from the seeds, led by the model's branches.
func FuzzPrivilegedTranslate(f *testing.F) {
	s := newStage(f)
	s.deal(rand.New(rand.NewPCG(1, 0)), roundFlows)
	m := newMaker(s, rand.New(rand.NewPCG(2, 0)))
	for range 200 {
		into, in := m.next()
		f.Add(uint8(into.Hook), uint8(m.IntN(len(s.pods))), uint16(in.GSOSize), append([]byte{}, in.Frame...))
	}
	f.Fuzz(func(t *testing.T, hook, pod uint8, gso uint16, frame []byte) {
		s.TB = t
		if !understood(frame) {
			t.Skip("no frame that the kernel runs a program on")
		}
		if s.late() || len(s.Rows) > 4*roundFlows {
			s.deal(rand.New(rand.NewPCG(1, 0)), roundFlows)
		}
		into, in := s.dress(hook, pod, gso, frame)
		s.Do(t, func() error {
			err := s.both(into, in, newTally())
			if err != nil { // what went before may have been slow
				s.deal(rand.New(rand.NewPCG(1, 0)), roundFlows)
				err = s.both(into, in, newTally())
			}
			return err
		})
	})
}

// understood: is it IP, as long as BPF_PROG_TEST_RUN wants it?
func understood(frame []byte) bool {
	if len(frame) < packet.EthLen+20 || len(frame) > packet.FrameMax {
		return false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case packet.EthIPv4:
		return true
	case packet.EthIPv6:
		return len(frame) >= packet.EthLen+40
	}
	return false
}

// dress puts the frame on a device, with the MAC addresses of its link.
func (s *stage) dress(hook, pod uint8, gso uint16, frame []byte) (model.In, packet.In) {
	at := model.Hook(1 + hook%uint8(model.FromHost))
	device := s.pods[int(pod)%len(s.pods)].Device
	on := device.Index
	switch at {
	case model.FromUplink, model.ToUplink:
		device, on = s.uplink, s.uplink.Index
	case model.FromHost:
		device, on = packet.Device{}, 1
	}
	frame = append([]byte{}, frame...)
	copy(frame, device.MAC[:])
	copy(frame[6:], device.Peer[:])
	in := packet.In{Program: hookNames[at], Device: device.Index, Frame: frame, GSOSize: int(gso)}
	return model.In{Hook: at, Device: on, DeviceMAC: device.MAC, Frame: frame, GSOSize: int(gso)}, in
}

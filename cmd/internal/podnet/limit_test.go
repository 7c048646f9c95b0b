// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
)

func TestShaper(t *testing.T) {
	const containerd, crio = 1<<32 - 1, 8 * (1<<31 - 1)
	for _, tt := range []struct {
		name         string
		rate         Rate
		mtu          int
		burst, queue uint64 // bytes
	}{
		{"none", Rate{}, 1500, 0, 0},
		{"a burst alone is none", Rate{Burst: 1 << 20}, 1500, 0, 0},
		{"1 Mbit/s holds a few packets", Rate{Rate: 1e6}, 1500, 1514, 3*1514 + 1513},
		{"10 Mbit/s, 4 ms", Rate{Rate: 10e6}, 1500, 5000, 8*1514 + 1513},
		{"10 Mbit/s as containerd has it", Rate{10e6, containerd}, 1500, 8 * 1514, 8*1514 + 1513},
		{"10 Mbit/s as CRI-O has it", Rate{10e6, crio}, 1500, 8 * 1514, 8*1514 + 1513},
		{"a burst between the bounds stays", Rate{10e6, 8 * 9000}, 1500, 9000, 8*1514 + 1513},
		{"a burst that is too small grows", Rate{10e6, 8}, 1500, 5000, 8*1514 + 1513},
		{"100 Mbit/s takes a segment of 64 KiB whole", Rate{Rate: 100e6}, 1500, 68 << 10, 82*1514 + 1513},
		{"1 Gbit/s", Rate{1e9, containerd}, 1500, 825 * 1514, 247*1514 + 1513},
		{"10 Gbit/s", Rate{Rate: 10e9}, 1500, 5e6, 2479*1514 + 1513},
		{"1 Mbit/s, large MTU", Rate{Rate: 1e6}, 9000, 9014, 3*9014 + 9013},
		{"1 Pbit/s fits the kernel's fields", Rate{1e15, crio}, 1500, 64 << 20, 64 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.rate.shaper(tt.mtu, maps.ShaperTBF)
			if s.Rate != tt.rate.Rate/8 || s.Burst != tt.burst || s.Queue != tt.queue {
				t.Errorf("got %+v, want burst %d and queue %d", s, tt.burst, tt.queue)
			}
			flows := tt.rate.shaper(tt.mtu, maps.ShaperTBFFqCodel)
			if (flows.Flows != nil) != (tt.rate.Rate > 0) || s.Flows != nil {
				t.Error("queues of flows do not go by the kind")
			}
			if flows.Flows = nil; flows != s {
				t.Errorf("with queues of flows the bucket is %+v, without %+v", flows, s)
			}
			if s.Queue < min(s.Burst, wholeSegment) {
				t.Error("a segment that is not cut would always be dropped")
			}
		})
	}
}

func TestFlowQueues(t *testing.T) {
	for _, tt := range []struct {
		name             string
		rate             uint64
		mtu              int
		target, interval time.Duration
		memory           uint64
	}{
		{"1 kbit/s", 1000, 1500, 15140 * time.Millisecond, 30280 * time.Millisecond, 32 * (1514 + 2048)},
		{"100 kbit/s", 1e5, 1500, 151400 * time.Microsecond, 302800 * time.Microsecond, 32 * (1514 + 2048)},
		{"1 Mbit/s", 1e6, 1500, 15140 * time.Microsecond, 100 * time.Millisecond, 32 * (1514 + 2048)},
		{"10 Mbit/s, 100 ms", 10e6, 1500, 5 * time.Millisecond, 100 * time.Millisecond, 250000},
		{"1 Gbit/s", 1e9, 1500, 5 * time.Millisecond, 100 * time.Millisecond, 25e6},
		{"1 Pbit/s", 1e15, 1500, 5 * time.Millisecond, 100 * time.Millisecond, 32 << 20},
		{"10 Mbit/s, large MTU", 10e6, 9000, 9014 * time.Microsecond, 100 * time.Millisecond, 32 * (9014 + 2048)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Rate{Rate: tt.rate}.shaper(tt.mtu, maps.ShaperTBFFqCodel).Flows
			if f.Target != tt.target || f.Interval != tt.interval || f.Memory != tt.memory {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestShaperKind(t *testing.T) {
	for features, want := range map[maps.Features]maps.Shaper{
		0: maps.ShaperTBF, maps.FeatureTBF | maps.FeatureTCX: maps.ShaperTBF,
		maps.FeatureTBF | maps.FeatureFqCodel: maps.ShaperTBFFqCodel,
	} {
		if got := shaperKind(features); got != want {
			t.Errorf("%s: got %s, want %s", features, got, want)
		}
	}
}

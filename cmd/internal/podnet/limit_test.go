// SPDX-License-Identifier: Apache-2.0

package podnet

import "testing"

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
		{"1 Mbit/s holds a few packets", Rate{Rate: 1e6}, 1500, 3028, 8 * 1514},
		{"10 Mbit/s, 4 ms", Rate{Rate: 10e6}, 1500, 5000, 12500},
		{"10 Mbit/s as containerd has it", Rate{10e6, containerd}, 1500, 12500, 14014},
		{"10 Mbit/s as CRI-O has it", Rate{10e6, crio}, 1500, 12500, 14014},
		{"a burst between the bounds stays", Rate{10e6, 8 * 9000}, 1500, 9000, 12500},
		{"a burst that is too small grows", Rate{10e6, 8}, 1500, 5000, 12500},
		{"100 Mbit/s takes a segment of 64 KiB whole", Rate{Rate: 100e6}, 1500, 68 << 10, 125000},
		{"1 Gbit/s", Rate{1e9, containerd}, 1500, 1250000, 1251514},
		{"1 Gbit/s, large MTU", Rate{Rate: 1e6}, 9000, 18028, 8 * 9014},
		{"1 Pbit/s fits the kernel's fields", Rate{1e15, crio}, 1500, 64 << 20, 64 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.rate.shaper(tt.mtu)
			if s.Rate != tt.rate.Rate/8 || s.Burst != tt.burst || s.Queue != tt.queue {
				t.Errorf("got %+v, want burst %d and queue %d", s, tt.burst, tt.queue)
			}
			if s.Rate > 0 && s.Queue < s.Burst {
				t.Error("a segment as large as the burst would always be dropped")
			}
		})
	}
}

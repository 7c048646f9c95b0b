// SPDX-License-Identifier: Apache-2.0

package netdev

import "testing"

// FuzzPorts: what the two sysctls may hold is a list of ports or an error.
func FuzzPorts(f *testing.F) {
	f.Add("32768\t60999", "")
	f.Add("1024 65535", "8080,9000-9010,50051")
	f.Add("5", ",,-,1-")
	f.Fuzz(func(t *testing.T, local, reserved string) {
		ranges, err := hostPorts(local, reserved)
		if err != nil {
			return
		}
		if len(ranges) == 0 {
			t.Error("not even the range of the host's sockets")
		}
		for _, r := range ranges {
			if r.First < 0 || r.First > 65535 || r.Last < 0 || r.Last > 65535 {
				t.Errorf("ports %+v", r)
			}
		}
	})
}

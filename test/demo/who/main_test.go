// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestGreeting(t *testing.T) {
	for _, tt := range []struct{ name, from, want string }{
		{"IPv4", "192.0.2.2:40000", "a sees 192.0.2.2\n"},
		{"IPv4 on a socket of both families", "[::ffff:192.0.2.2]:40000", "a sees 192.0.2.2\n"},
		{"IPv6", "[2001:db8::2]:40000", "a sees 2001:db8::2\n"},
		{"no port", "somewhere", "a sees somewhere\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := greeting("a", tt.from); got != tt.want {
				t.Errorf("greeting(%q) = %q, want %q", tt.from, got, tt.want)
			}
		})
	}
}

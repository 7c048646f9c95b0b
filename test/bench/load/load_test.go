// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestMain(m *testing.M) {
	load.Main()
	os.Exit(m.Run())
}

func TestPrivilegedKinds(t *testing.T) {
	client, server := netns.New(t, "client"), netns.New(t, "server")
	err := node.IP(server, "link add veth0 type veth peer name veth0 netns "+client.Path(), "link set veth0 up",
		"addr add 10.20.0.2/24 dev veth0", "addr add fd00:20::2/64 dev veth0 nodad")
	if err != nil {
		t.Fatal(err)
	}
	client.IP(t, "link set veth0 up", "addr add 10.20.0.1/24 dev veth0", "addr add fd00:20::1/64 dev veth0 nodad")
	client.Settle(t, "veth0", netip.MustParseAddr("fd00:20::1"))
	server.Settle(t, "veth0", netip.MustParseAddr("fd00:20::2"))
	s, err := load.Serve(server, 80, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const d = 50 * time.Millisecond
	for _, to := range []string{"10.20.0.2:80", "[fd00:20::2]:80"} {
		for _, tc := range []struct {
			kind    load.Kind
			latency bool
		}{{load.RR, true}, {load.CRR, true}, {load.UDP, false}, {load.Stream, false}} {
			t.Run(to+" "+string(tc.kind), func(t *testing.T) {
				r, err := s.Call(client, tc.kind, netip.MustParseAddrPort(to), d)
				if err != nil {
					t.Fatal(err)
				}
				if r.Ops == 0 || r.CPU <= 0 || r.Lost != 0 {
					t.Errorf("%+v: want operations, CPU time, nothing lost", r)
				}
				if tc.latency != (r.P50 > 0) || r.P50 > d {
					t.Errorf("%+v: p50 wanted: %t", r, tc.latency)
				}
				// Both processes and their packets, which are not all on one processor.
				if most := 3 * (d + 100*time.Millisecond); r.CPU > most {
					t.Errorf("CPU time %s in a cell of %s", r.CPU, d)
				}
			})
		}
	}
}

func TestPrivilegedNobodyThere(t *testing.T) {
	client, server := netns.New(t, "client"), netns.New(t, "server")
	s, err := load.Serve(server, 80, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, kind := range []load.Kind{load.RR, load.CRR, load.UDP, load.Stream, "no such"} {
		if r, err := s.Call(client, kind, netip.MustParseAddrPort("127.0.0.1:81"), time.Millisecond); err == nil {
			t.Errorf("%s: %+v, want an error: nobody listens", kind, r)
		}
	}
}

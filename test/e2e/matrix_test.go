// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// H1, H2, H3, H4, H9, N1, F1: every cell of docs/matrix.md.
func TestPrivilegedMatrix(t *testing.T) {
	t.Parallel()
	c := wire(t, matrixLayout)
	tryMatrix(t, newMatrixStage(t, c.Net, culvertPod), "")
}

// The same cells with bridge and portmap: what the document says of them is so.
func TestPrivilegedMatrixOracle(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			net := netns.Wire(t, matrixLayout)
			for _, n := range net.Nodes {
				seeBridged(t, n)
			}
			tryMatrix(t, newMatrixStage(t, net, oraclePod(backend)), backend)
		})
	}
}

// tryMatrix tries the cells with culvert, or with a backend of portmap.
func tryMatrix(t *testing.T, s *matrixStage, backend string) {
	t.Helper()
	for _, part := range []struct {
		heading string
		called  map[string]matrixCalled
	}{{callingAPod, s.pod}, {aPodCalling, s.world}} {
		if part.called == nil {
			continue
		}
		m := readMatrix(t, part.heading)
		for _, row := range m.rows {
			from, ok := s.callers[row.caller]
			if !ok {
				t.Fatalf("docs/matrix.md: no such caller: %s", row.caller)
			}
			for i, name := range m.called {
				to, ok := part.called[name]
				if !ok {
					t.Fatalf("docs/matrix.md: no such way to call: %s", name)
				}
				if row.cells[i].want[0] == "-" {
					continue
				}
				t.Run(row.caller+"/"+name, func(t *testing.T) {
					each(t, to.protos, func(t *testing.T, proto string, family int) {
						s.try(t, from, to, row.cells[i].of(backend, family), proto, family)
					})
				})
			}
		}
	}
}

// try makes one cell's calls, one for each address that its column has.
func (s *matrixStage) try(t *testing.T, from matrixCaller, to matrixCalled, want, proto string, family int) {
	for _, at := range to.at(family) {
		c := netns.Call{Proto: proto, To: at}
		if from.bound != nil {
			c.From = netip.AddrPortFrom(from.bound(family), 0)
		}
		if want == "silent" {
			c.Timeout = 300 * time.Millisecond
		}
		if got := s.outcome(from, to, c); got != want {
			t.Errorf("%s: want %s, got %s", c, want, got)
		}
	}
}

// outcome makes a call and says what came of it in the document's words.
func (s *matrixStage) outcome(from matrixCaller, to matrixCalled, c netns.Call) string {
	var before int
	if c.Proto == "icmp" {
		before = to.echoes.Count()
	}
	r, local, err := from.ns.Probe(c)
	if err == nil && c.Proto == "icmp" {
		var source netip.Addr
		source, err = to.echoes.After(before)
		r = netns.Reply{Server: to.server, Remote: netip.AddrPortFrom(source, 0)}
	}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES):
		return "unreachable"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "silent"
	case err != nil:
		return err.Error()
	case r.Server == from.ns.Name && r.Local.Addr().IsLoopback():
		return "own"
	case r.Server != to.server:
		return fmt.Sprintf("an answer by %s at %s", r.Server, r.Local)
	case r.Remote.Addr() == local:
		return "caller"
	}
	source := r.Remote.Addr().WithZone("")
	if name, ok := s.names[source]; ok {
		return name
	}
	return source.String()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
)

// What a person reads of a packet: nothing twice, and nothing that is not there.
func TestTraceLine(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 42, 7, 118204000, time.Local)
	echo := uint8(8)
	for _, c := range []struct {
		want string
		row  traceRow
	}{
		{"10:42:07.118204 from_pod    drop source udp 10.88.0.9:5353 > 10.88.0.3:53 len 74 on cv3f pod 4f2a9c1be0d2c/eth0",
			traceRow{Hook: "from_pod", Verdict: "drop", Reason: "source", Proto: "udp", Src: "10.88.0.9:5353", Dst: "10.88.0.3:53",
				ToSrc: "10.88.0.9:5353", ToDst: "10.88.0.3:53", Length: 74, Device: "cv3f", Pod: "4f2a9c1be0d2c5d7/eth0"}},
		{"10:42:07.118204 from_uplink redirect   tcp c:1 > n:80 [S] len 60 as c:1 > p:80 on eth0 to cv3f pod 4f2a/eth0",
			traceRow{Hook: "from_uplink", Verdict: "redirect", Proto: "tcp", Src: "c:1", Dst: "n:80", ToSrc: "c:1", ToDst: "p:80",
				TCPFlags: "S", Length: 60, Device: "eth0", OutDevice: "cv3f", OutPod: "4f2a/eth0"}},
		{"10:42:07.118204 to_pod      pass       icmp c > p type 8 first fragment len 1500 on cv3f",
			traceRow{Hook: "to_pod", Verdict: "pass", Proto: "icmp", Src: "c", Dst: "p", ToSrc: "c", ToDst: "p", ICMPType: &echo,
				Fragment: "first", Length: 1500, Device: "cv3f"}},
		{"10:42:07.118204 from_pod    drop source ethertype 0x8100 len 60 on cv3f",
			traceRow{Hook: "from_pod", Verdict: "drop", Reason: "source", Ethertype: "0x8100", Length: 60, Device: "cv3f"}},
	} {
		c.row.Time = at
		if got := c.row.line(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A stream is a line of JSON, or a document of YAML, a packet.
func TestTraceOutputs(t *testing.T) {
	for output, want := range map[string]string{"json": "{\"time\":", "yaml": "---\ndevice: eth0\n", "table": "00:00:00.000000 h "} {
		var out bytes.Buffer
		row := traceRow{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local), Hook: "h", Device: "eth0"}
		if err := row.show(&app{output: output}, &out); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, %v", output, out.String(), err)
		}
		if lines := strings.Count(out.String(), "\n"); output != "yaml" && lines != 1 {
			t.Errorf("%s: %d lines", output, lines)
		}
	}
}

func TestTraceFilter(t *testing.T) {
	host := netip.MustParseAddr("10.1.2.3")
	for _, c := range []struct {
		flags traceFlags
		want  maps.TraceFilter
		wrong string
	}{
		{flags: traceFlags{}, want: maps.TraceFilter{DropsOnly: true}},
		{flags: traceFlags{pod: "4f2a"}},
		{flags: traceFlags{pod: "4f2a", dropsOnly: true}, want: maps.TraceFilter{DropsOnly: true}},
		{flags: traceFlags{host: "::ffff:10.1.2.3", port: 80}, want: maps.TraceFilter{Host: host, Port: 80}},
		{flags: traceFlags{proto: "icmp"}, want: maps.TraceFilter{Proto: 1}},
		{flags: traceFlags{proto: "gre"}, wrong: "use tcp, udp, sctp or icmp"},
		{flags: traceFlags{host: "::"}, wrong: "no address"},
		{flags: traceFlags{host: "web"}, wrong: "no address"},
	} {
		got, err := c.flags.filter()
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) || exitCode(err) != 2 {
				t.Errorf("%+v: %v", c.flags, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.flags, got, err)
		}
	}
}

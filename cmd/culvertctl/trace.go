// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

const traceHelp = `Follow packets at the hooks of the datapath as they pass, a line each.

Without a filter these are the packets that are dropped, and why. With one they are all
that match it: what each hook made of the packet, where it was sent, and how its addresses
were changed. An address or port matches source or destination, before or after that.

The datapath tells nothing while nobody follows. One process at a time can.`

const traceExample = `  culvertctl trace
  culvertctl trace --pod 10.88.0.3 --drops-only
  culvertctl trace --host 203.0.113.9 --port 8080 --count 20
  culvertctl trace --proto udp -o json | jq .toDst`

// The datapath falls silent so long after a reader's last word, who gives one each beat.
const (
	traceBeat  = time.Second
	traceGrace = 5 * time.Second
)

type traceFlags struct {
	pod, host, proto string
	port             uint16
	dropsOnly        bool
	count            uint
}

func newTrace(a *app) *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use:     "trace",
		Short:   "Follow dropped packets, or all that match a filter, at every hook",
		Long:    traceHelp,
		Example: traceExample,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return trace(ctx, a, f, c)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.pod, "pod", "", "of a pod: container id or its beginning, ID/INTERFACE, or an address of the pod")
	flags.StringVar(&f.host, "host", "", "from or to this address")
	flags.Uint16Var(&f.port, "port", 0, "from or to this port")
	flags.StringVar(&f.proto, "proto", "", "tcp, udp, sctp or icmp (of both families)")
	flags.BoolVar(&f.dropsOnly, "drops-only", false, "only what is dropped (the default without another filter)")
	flags.UintVar(&f.count, "count", 0, "end after so many packets; 0: never")
	completeFlag(c, "pod", completePod(a))
	completeFlag(c, "proto", cobra.FixedCompletions([]string{"icmp", "sctp", "tcp", "udp"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// traceProtos are the values of --proto; ICMP is that of both families.
var traceProtos = map[string]uint8{"icmp": unix.IPPROTO_ICMP, "sctp": unix.IPPROTO_SCTP, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// filter makes of the flags what the datapath compares, but for the pod.
func (f traceFlags) filter() (maps.TraceFilter, error) {
	proto, ok := traceProtos[f.proto]
	if !ok && f.proto != "" {
		return maps.TraceFilter{}, usage("--proto %q is unknown: use tcp, udp, sctp or icmp", f.proto)
	}
	filter := maps.TraceFilter{Port: f.port, Proto: proto}
	if f.host != "" {
		host, err := netip.ParseAddr(f.host)
		if err != nil || host.Unmap().IsUnspecified() {
			return filter, usage("--host %q is no address of a host", f.host)
		}
		filter.Host = host.Unmap().WithZone("")
	}
	filter.DropsOnly = f.dropsOnly || f.pod == "" && filter == maps.TraceFilter{}
	return filter, nil
}

// trace prints until it is told to end, has printed enough, or the datapath is gone.
func trace(ctx context.Context, a *app, f traceFlags, c *cobra.Command) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	d, err := a.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if f.pod != "" {
		pod, err := findPod(d.Maps, f.pod)
		if err != nil {
			return err
		}
		filter.Ifindex = pod.Ifindex
	}
	t, err := d.Trace()
	if err != nil {
		return err
	}
	defer t.Close()
	defer context.AfterFunc(ctx, t.Interrupt)()
	t.Start(filter, monotonic(), monotonic()+traceGrace)
	what := "packets"
	if filter.DropsOnly {
		what = "dropped packets"
	}
	c.PrintErrf("following %s, Ctrl-C ends\n", what)
	n, err := follow(a, f.count, t, newTracePrinter(d.Maps, time.Now().Add(-monotonic())))
	if lost := t.Lost(); lost > 0 {
		c.PrintErrf("%d packets printed; %d came too fast and are lost: narrow the filter\n", n, lost)
	}
	return err
}

// follow says how many packets it has printed.
func follow(a *app, count uint, t *loader.Trace, p *tracePrinter) (n uint, err error) {
	out := bufio.NewWriter(a.out)
	defer func() { err = errors.Join(err, out.Flush()) }()
	for beat := time.Now().Add(traceBeat); count == 0 || n < count; {
		if !time.Now().Before(beat) {
			if !t.Stands() {
				return n, errors.New("the datapath is gone or was moved: see culvertctl status, and start the trace again")
			}
			t.Extend(monotonic() + traceGrace)
			beat = time.Now().Add(traceBeat)
		}
		e, more, err := t.Read(beat)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, os.ErrClosed):
			return n, nil
		case err != nil:
			return n, err
		}
		n++
		if err = p.row(e).show(a, out); err == nil && !more {
			err = out.Flush()
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

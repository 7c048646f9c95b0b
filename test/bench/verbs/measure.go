// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/bench/stats"
	"github.com/culvert-cni/culvert/test/netns"
)

// What of each verb is measured, beside wall and CPU time.
const (
	PerSecond report.Metric = "ADD pods/s"
	Errors    report.Metric = "errors"
	Late      report.Metric = "hostPorts late" // did not answer when ADD returned
)

var verbs = []string{"ADD", "CHECK", "DEL"}

func wall(verb string) report.Metric { return report.Metric(verb + " wall ms") }

// CPU time of a call.
func CPU(verb string) report.Metric { return report.Metric(verb + " CPU ms") }

// measure makes n pods at once, checks them and takes them away.
func (b *bed) measure(ctx context.Context, path string, n int, r report.Round) error {
	var pods []*node.Pod
	for i := range n {
		if i == len(b.spaces) {
			if err := b.space(); err != nil {
				return err
			}
		}
		pods = append(pods, b.PodIn(b.spaces[i], capabilities(first+2*i)))
	}
	var failed []error
	late := make([]error, n)
	for _, verb := range verbs {
		walls := make([]float64, n)
		before, start := childrenCPU(), time.Now()
		errs := parallel(pods, func(i int, p *node.Pod) error {
			begin := time.Now()
			err := map[string]func(context.Context) error{"ADD": p.Add, "CHECK": p.Check, "DEL": p.Del}[verb](ctx)
			walls[i] = ms(time.Since(begin))
			if verb == "ADD" && err == nil {
				late[i] = b.answers(first + 2*i)
			}
			return err
		})
		took := time.Since(start)
		for _, err := range errs {
			if err != nil {
				failed = append(failed, err)
			}
		}
		r.Put(path, wall(verb), stats.Median(walls))
		r.Put(path, CPU(verb), ms(childrenCPU()-before)/float64(n))
		if verb == "ADD" {
			r.Put(path, PerSecond, float64(n)/took.Seconds())
		}
	}
	r.Put(path, Errors, float64(len(failed)))
	waited := 0
	for _, err := range late {
		if err != nil {
			waited++
		}
	}
	r.Put(path, Late, float64(waited))
	return errors.Join(errors.Join(failed...), errors.Join(late...))
}

// space makes a namespace for pods that are measured, one after the other. To let one go for
// each would have the kernel take it down, under the lock that the next ADD waits for.
func (b *bed) space() error {
	ns, err := netns.TryNew("pods of " + b.Chain.Name)
	if err != nil {
		return err
	}
	b.spaces = append(b.spaces, ns)
	closer, err := serve(ns)
	if err == nil {
		b.closers = append(b.closers, closer)
	}
	return err
}

// serve answers every connection to a pod's port with a byte.
func serve(ns *netns.NS) (closer func(), err error) {
	return ns.Accept("tcp", node.Port, func(c net.Conn) { _, _ = c.Write([]byte{1}) })
}

// answers says whether a hostPort does, in both families, at the first try.
func (b *bed) answers(port int) error {
	var errs []error
	for _, addr := range []netip.Addr{node.Addr, node.Addr6} {
		errs = append(errs, b.outside.Do(func() error { return ask(netip.AddrPortFrom(addr, uint16(port))) }))
	}
	return errors.Join(errs...)
}

// prompt is less than the second after which a lost SYN is sent again.
const prompt = 900 * time.Millisecond

func ask(to netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", to.String(), prompt)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(prompt))
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

func childrenCPU() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

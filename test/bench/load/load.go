// SPDX-License-Identifier: Apache-2.0

// Package load makes the traffic that the benchmarks time: a server and a client, each a
// process of its own in a network namespace, both on one processor, with one connection
// at a time. Its figures are those that stay the same from run to run: the median of
// latencies, and CPU time.
//
// The processes are the calling program again (Main), and spend their time in blocking
// system calls that the Go scheduler does not hear of.
package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// Kind says what the client does.
type Kind string

const (
	RR     Kind = "rr"     // one byte there, one byte back, on one TCP connection
	CRR    Kind = "crr"    // TCP: connect, one byte there and back, close
	UDP    Kind = "udp"    // datagrams of 64 bytes
	Stream Kind = "stream" // TCP (cubic), one way, as fast as it goes
)

// patience is for a client that waits for what got lost.
const patience = 5 * time.Second

// word makes a program a process of this package's when it is its first argument.
const word = "culvert-bench-load"

// Result is what a client measured.
type Result struct {
	Ops  int           // round trips, connections, datagrams or bytes
	P50  time.Duration // of a round trip (RR) or a connection (CRR)
	CPU  time.Duration // of client, server and the processor's ksoftirqd
	Lost int           // datagrams
}

// CPUPerOp is in ns.
func (r Result) CPUPerOp() float64 { return float64(r.CPU) / float64(max(r.Ops, 1)) }

// Main has to be called first by every program that uses the package. It does not
// return when the process is a server or a client.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != word {
		return
	}
	if err := work(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(args []string) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM) // to the whole group; who started us ends us
	var c call
	fs := flag.NewFlagSet(word, flag.ContinueOnError)
	fs.StringVar((*string)(&c.kind), "kind", "", "of client; empty: a server")
	fs.TextVar(&c.to, "to", netip.AddrPort{}, "whom to call; of a server the port alone counts")
	fs.DurationVar(&c.time, "time", 0, "to measure")
	fs.IntVar(&c.server, "server", 0, "its process")
	fs.IntVar(&c.cpu, "cpu", 0, "to run on")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.kind == "" {
		return serve(c.to.Port(), c.cpu, os.Stdin, os.Stdout)
	}
	r, err := c.run()
	if err != nil {
		return fmt.Errorf("%s to %s: %w", c.kind, c.to, err)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// command is this program as a server or client.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{word}, args...)...)
	// No signals (asyncpreemptoff) and no collector while something is timed; a thread
	// in a system call keeps its place, so there are more than processors.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=8")
	return cmd
}

// Server answers TCP and UDP on one port of a namespace, both families.
type Server struct {
	cpu  int
	cmd  *exec.Cmd
	live io.Closer // the server ends when it is closed
}

// Serve starts a server on a processor.
func Serve(ns *netns.NS, port uint16, cpu int) (*Server, error) {
	cmd := command("-to", netip.AddrPortFrom(netip.IPv6Unspecified(), port).String(), "-cpu", strconv.Itoa(cpu))
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start server in %s: %w", ns.Name, err)
	}
	s := &Server{cpu: cpu, cmd: cmd, live: stdin}
	if _, err := io.ReadFull(stdout, make([]byte, len(ready))); err != nil {
		return nil, fmt.Errorf("wait for server in %s: %w", ns.Name, errors.Join(err, s.Close()))
	}
	return s, nil
}

// Close ends the server.
func (s *Server) Close() error {
	_ = s.live.Close()
	return s.cmd.Wait()
}

// Call has a client in ns call the server by an address that leads to it, on the same
// processor, for so long.
func (s *Server) Call(ns *netns.NS, kind Kind, to netip.AddrPort, d time.Duration) (Result, error) {
	cmd := command("-kind", string(kind), "-to", to.String(), "-time", d.String(),
		"-server", strconv.Itoa(s.cmd.Process.Pid), "-cpu", strconv.Itoa(s.cpu))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := ns.Start(cmd); err != nil {
		return Result{}, fmt.Errorf("start client in %s: %w", ns.Name, err)
	}
	late := time.AfterFunc(d+patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		return Result{}, fmt.Errorf("client in %s: %s to %s: %w: %s", ns.Name, kind, to, err, bytes.TrimSpace(errs.Bytes()))
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("client in %s: %w", ns.Name, err)
	}
	return r, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// node is a network namespace with an uplink, on which one chain makes pods.
type node struct {
	chain chain
	costs map[string][]cost

	ns   *namespace
	cni  *libcni.CNIConfig
	dir  string
	pins string
	pods int // made so far
}

func newNode(c chain, o options) (*node, error) {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, err
	}
	n := &node{chain: c, dir: dir, costs: map[string][]cost{}, pins: fmt.Sprintf("/sys/fs/bpf/culvert-bench-%d", os.Getpid())}
	if n.ns, err = newNamespace(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	bin, err1 := filepath.Abs(o.bin)
	ref, err2 := filepath.Abs(o.ref)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{bin, ref}, filepath.Join(dir, "cache"), nil)
	lines := []string{"link set lo up", "link add up0 type veth peer name out0", "link set up0 up", "link set out0 up",
		"addr add 10.10.0.10/24 dev up0", "addr add fd00:10::10/64 dev up0 nodad",
		"route add default via 10.10.0.1", "route add default via fd00:10::1"}
	err = n.ns.do(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")), os.Stderr
		return cmd.Run()
	})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) close() error {
	n.ns.close()
	return errors.Join(os.RemoveAll(n.dir), os.RemoveAll(n.pins))
}

// fill makes a pod that stays.
func (n *node) fill(ctx context.Context, i int) error {
	_, _, err := n.add(ctx, 10000+2*i)
	return err
}

// round makes a pod, checks it and takes it away.
func (n *node) round(ctx context.Context, count bool) error {
	pod, run, err := n.add(ctx, 8080)
	if err != nil {
		return err
	}
	defer pod.close()
	steps := []func() error{
		func() error { return n.cni.CheckNetworkList(ctx, run.list, run.rt) },
		func() error { return n.cni.DelNetworkList(ctx, run.list, run.rt) },
	}
	for i, verb := range verbs[1:] {
		c, err := n.measure(steps[i])
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		run.costs = append(run.costs, c)
	}
	if count {
		for i, verb := range verbs {
			n.costs[verb] = append(n.costs[verb], run.costs[i])
		}
	}
	return nil
}

type attachment struct {
	list  *libcni.NetworkConfigList
	rt    *libcni.RuntimeConf
	costs []cost
}

func (n *node) add(ctx context.Context, port int) (*namespace, *attachment, error) {
	list, err := libcni.ConfListFromBytes([]byte(n.chain.conflist(n.dir, n.pins)))
	if err != nil {
		return nil, nil, err
	}
	pod, err := newNamespace()
	if err != nil {
		return nil, nil, err
	}
	n.pods++
	run := &attachment{list: list, rt: &libcni.RuntimeConf{
		ContainerID: fmt.Sprintf("pod%d", n.pods), NetNS: pod.path(), IfName: "eth0",
		CapabilityArgs: map[string]any{
			"portMappings": []map[string]any{
				{"hostPort": port, "containerPort": 80, "protocol": "tcp"},
				{"hostPort": port + 1, "containerPort": 53, "protocol": "udp"}},
			"bandwidth": map[string]any{"ingressRate": 100e6, "ingressBurst": 1e6, "egressRate": 100e6, "egressBurst": 1e6},
		},
	}}
	c, err := n.measure(func() error {
		_, err := n.cni.AddNetworkList(ctx, list, run.rt)
		return err
	})
	if err != nil {
		pod.close()
		return nil, nil, fmt.Errorf("ADD: %w", err)
	}
	run.costs = []cost{c}
	return pod, run, nil
}

// measure runs f in the node's namespace, where the plugins that it starts are too.
func (n *node) measure(f func() error) (cost, error) {
	before, start := cpuOfChildren(), time.Now()
	err := n.ns.do(f)
	return cost{time.Since(start), cpuOfChildren() - before}, err
}

func cpuOfChildren() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// namespace is a network namespace that lives as long as its descriptor.
type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	return n, err
}

func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

func (n *namespace) close() { _ = n.file.Close() }

// do runs f on a thread in the namespace: what f starts is in there too.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/netns"
)

// floor is what culvert's verbs cannot do without on a node: a process of culvert, which says
// its version and ends; and the kernel's work for a pod's veth pair, addresses and routes, made
// by one ip(8), less what ip takes for nothing.
func (b *bed) floor(ctx context.Context, bin node.Binaries, r report.Round) error {
	pod := b.spaces[0]
	var failed []error
	spent := func(times int, run func() error) float64 {
		before := childrenCPU()
		for range times {
			failed = append(failed, run())
		}
		return ms(childrenCPU()-before) / float64(times)
	}
	process := spent(5, func() error {
		return b.exec(ctx, filepath.Join(bin.Culvert, "culvert"), `{"cniVersion": "1.0.0"}`, "CNI_COMMAND=VERSION")
	})
	nothing := func(ns *netns.NS) float64 {
		return spent(1, func() error { return batch(ctx, ns, "") })
	}
	both := nothing(b.NS) + nothing(pod)
	made := spent(1, func() error {
		return errors.Join(batch(ctx, b.NS, "link add floor0 type veth peer name floor1 netns "+pod.Path()+"\nlink set floor0 up\n"+
			"route add 10.245.0.2 dev floor0\nroute add fd00:245::2 dev floor0\n"),
			batch(ctx, pod, "addr add 10.245.0.2/16 dev floor1\naddr add fd00:245::2/64 dev floor1 nodad\nlink set floor1 up\n"+
				"route add default dev floor1\nroute add ::/0 dev floor1\n"))
	})
	one := nothing(b.NS)
	gone := spent(1, func() error { return batch(ctx, b.NS, "link del floor0\n") })
	kernel := map[string]float64{"ADD": max(made-both, 0), "DEL": max(gone-one, 0)}
	path := pathName(floor, b.pods, b.hostPorts, 1)
	for _, verb := range verbs {
		r.Put(path, CPU(verb), process+kernel[verb])
	}
	return errors.Join(failed...)
}

// floor begins the names of its paths.
const floor = "floor"

// exec runs a plugin on the node.
func (b *bed) exec(ctx context.Context, plugin, stdin string, env ...string) error {
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	if err := b.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", plugin, env[0], err, out.Bytes())
	}
	return nil
}

func batch(ctx context.Context, ns *netns.NS, lines string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader([]byte(lines)), &out, &out
	if err := ns.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out.Bytes())
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/netns"
)

// floor is what a verb cannot do without: the processes of culvert and of its IPAM plugin,
// which say their versions and end, and the kernel's work for a pod's veth pair, addresses
// and routes, made by one ip(8), less what ip takes for nothing.
const (
	floor     = "floor"
	floorOwn  = "floor, of it culvert's process"
	floorIPAM = "floor, of it host-local's process"
)

func (s *stage) floor(ctx context.Context, r report.Round) error {
	b := s.beds[0]
	pod := b.spaces[0]
	var failed []error
	spent := func(times int, run func() error) float64 {
		before := childrenCPU()
		for range times {
			failed = append(failed, run())
		}
		return ms(childrenCPU()-before) / float64(times)
	}
	start := time.Now()
	own := spent(5, func() error { return version(ctx, b.NS, filepath.Join(s.Bin.Culvert, "culvert")) })
	ipam := spent(5, func() error { return version(ctx, b.NS, filepath.Join(s.Bin.Ref, "host-local")) })
	took, processes := time.Since(start)/5, own+ipam
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
	r.Put(floorOwn, CPU("CHECK"), own)
	r.Put(floorIPAM, CPU("CHECK"), ipam)
	r.Put(floor, CPU("ADD"), processes+max(made-both, 0))
	r.Put(floor, CPU("CHECK"), processes)
	r.Put(floor, CPU("DEL"), processes+max(gone-one, 0))
	r.Put(floor, wall("CHECK"), ms(took))
	return errors.Join(failed...)
}

func version(ctx context.Context, ns *netns.NS, plugin string) error {
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	cmd.Stdin = bytes.NewReader([]byte(`{"cniVersion": "1.0.0"}`))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s VERSION: %w: %s", plugin, err, out.Bytes())
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

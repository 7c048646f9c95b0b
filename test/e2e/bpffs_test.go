// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// mounts is a mount namespace with a bpffs of its own at /sys/fs/bpf, in which the node's
// programs run. It ends with the process that holds it.
type mounts struct{ pid int }

// ownMounts makes one for a node, and gives the node the default pinPath in it.
func ownMounts(t *testing.T, n *netns.Node) *mounts {
	t.Helper()
	hold := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		"while umount /sys/fs/bpf 2>/dev/null; do :; done; mount -t bpf bpf /sys/fs/bpf && echo ready && exec cat")
	stdin, err1 := hold.StdinPipe()
	stdout, err2 := hold.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = hold.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("mount bpffs: %q, %v", line, err)
	}
	m := &mounts{hold.Process.Pid}
	real, dir := n.Bin.Dir, t.TempDir()
	for _, name := range []string{"culvert", "culvertctl"} {
		script := fmt.Sprintf("#!/bin/sh\nexec nsenter --target=%d --mount --root -- %s \"$@\"\n", m.pid, filepath.Join(real, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.Bin = &netns.Binaries{Dir: dir, Ref: n.Bin.Ref}
	n.PinPath = "/sys/fs/bpf/culvert"
	return m
}

// run runs a command in the mount namespace.
func (m *mounts) run(t *testing.T, argv ...string) {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{fmt.Sprintf("--target=%d", m.pid), "--mount", "--root", "--"}, argv...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// L7, P8: bpffs is unmounted while pods live. STATUS is 50 and says what to do, traffic to the
// pods and among them goes on, DEL succeeds; the next ADD, GC or reconcile mounts it and every
// row is back.
func TestPrivilegedL7Unmounted(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"ADD", "GC", "reconcile"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			c := &cluster{Net: netns.Wire(t, netns.Layout{})}
			node := c.Nodes[0]
			m := ownMounts(t, node)
			a, _ := serve(t, node, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{EgressRate: 1e7}})
			b, _ := serve(t, node, netns.PodSpec{Name: "b"})
			late, _ := serve(t, node, netns.PodSpec{Name: "late", Ports: netns.Both(8081, 80)})
			m.run(t, "umount", "/sys/fs/bpf")

			_, err := node.Exec("STATUS", nil, node.Conf())
			if netns.Code(err) != 50 || !strings.Contains(err.Error(), "no bpffs is mounted at /sys/fs/bpf") || !strings.Contains(err.Error(), "culvertctl reconcile") {
				t.Errorf("STATUS: %v", err)
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				ask(t, c.Outside().NS, call(proto, a.Addr(v), 80), want{server: "a"})
				ask(t, b.NS, call(proto, a.Addr(v), 80), want{server: "a"})
				ask(t, b.NS, call(proto, node.Uplinks[0].Addr(v), 8080), want{server: "a"})
			})
			late.Del(t)

			switch verb {
			case "ADD":
				serve(t, node, netns.PodSpec{Name: "new", Ports: netns.Both(8081, 80)})
			case "GC":
				c.gc(t, node)
			case "reconcile":
				lines := reconcile(t, node)
				parts := []string{"mounted a bpffs", "tables again", "loaded"}
				if _, tcx := release(t, 6, 6); tcx { // filters outlive their pins
					parts = append(parts, "uplink up0", "program for the node's own")
				}
				for _, part := range parts {
					if !strings.Contains(strings.Join(lines, "\n"), part) {
						t.Errorf("repaired: want %q, got %q", part, lines)
					}
				}
				said(t, reconcile(t, node))
			}
			if _, err := node.Exec("STATUS", nil, node.Conf()); err != nil {
				t.Errorf("STATUS after %s: %v", verb, err)
			}
			each(t, small, func(t *testing.T, proto string, v int) {
				up := node.Uplinks[0].Addr(v)
				ask(t, c.Outside().NS, call(proto, up, 8080), want{server: "a"})
				ask(t, node.NS, call(proto, loopback[v], 8080), want{server: "a"})
				if verb == "ADD" {
					ask(t, c.Outside().NS, call(proto, up, 8081), want{server: "new"})
				}
			})
			for _, p := range []*netns.Pod{a, b} {
				if err := p.Check(); err != nil {
					t.Errorf("CHECK %s: %v", p.ID, err)
				}
			}
		})
	}
}

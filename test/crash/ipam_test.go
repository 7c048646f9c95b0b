// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/netns"
)

// L1: told to stop (SIGTERM) while the IPAM plugin hangs, ADD takes back what it did and
// ends with error 11, even if the plugin's DEL hangs too; and so does DEL.
func TestPrivilegedL1HangingIPAM(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.add("pod", 8081)
	before := look(t, b.node)
	for _, tc := range []struct {
		name, hangs string
		verb        func(n *netns.Node, s netns.PodSpec) error
		most        time.Duration // from the signal on
	}{
		{"ADD", "ADD", func(n *netns.Node, s netns.PodSpec) error { _, err := n.TryAdd(s); return err }, 5 * time.Second},
		{"ADDAndDEL", "ADD|DEL", func(n *netns.Node, s netns.PodSpec) error { _, err := n.TryAdd(s); return err }, 20 * time.Second},
		{"DEL", "DEL", func(n *netns.Node, s netns.PodSpec) error {
			p, err := n.TryAdd(s)
			if err != nil {
				return err
			}
			return p.TryDel(nil)
		}, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := hanging(t, b.node, tc.hangs)
			s := b.specOn("hangs", 8082)
			s.Conf["ipam"] = map[string]any{"type": "hang"}
			s.Conf["nonMasqueradeCIDRs"] = []string{b.node.PodRange(4).String(), b.node.PodRange(6).String()} // as by the other one
			start := time.Now()
			err := tc.verb(n, s)
			if netns.Code(err) != 11 || !strings.Contains(err.Error(), "IPAM plugin hang: no answer") {
				t.Errorf("want error 11, got %v", err)
			}
			if took := time.Since(start); took > patience+tc.most && !netns.Emulated() {
				t.Errorf("it took %s", took)
			}
			if tc.hangs == "ADD|DEL" { // the row stays until the addresses are freed
				if err := hanging(t, b.node, "none").Unfinished(s).TryDelBare(); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			if err := netns.Poll(func() error {
				if left := before.left(look(t, b.node)); len(left) > 0 {
					return errors.New(strings.Join(left, "\n\t"))
				}
				return nil
			}); err != nil {
				t.Errorf("left:\n\t%v", err)
			}
			if err := b.works(pod); err != nil {
				t.Errorf("a pod that runs: %v", err)
			}
		})
	}
}

// patience is what the caller has, in whose name the signal comes.
const patience = 2 * time.Second

// hanging is the node with an IPAM plugin "hang" that does not answer these verbs, and a
// culvert that is told to stop after a while.
func hanging(t *testing.T, n *netns.Node, verbs string) *netns.Node {
	t.Helper()
	bin := *n.Bin
	bin.Dir = t.TempDir()
	for name, script := range map[string]string{
		"culvert": fmt.Sprintf("exec timeout --foreground --preserve-status -s TERM %g %s", patience.Seconds(), filepath.Join(n.Bin.Dir, "culvert")),
		"hang": fmt.Sprintf(`case $CNI_COMMAND in
			%s) exec sleep 600 ;;
			ADD) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.244.0.200/24"}]}' ;;
			esac`, verbs),
	} {
		if err := os.WriteFile(filepath.Join(bin.Dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	other := *n
	other.Bin = &bin
	return &other
}

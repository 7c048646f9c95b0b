// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// readOnly runs a program with /etc, /opt, /usr and /var as they are but read-only, and
// other people's configurations in /etc/cni/net.d.
const readOnly = `#!/bin/sh
exec unshare --mount -- sh -c '
	for dir in /opt /usr /var; do
		mount --bind $dir $dir && mount -o remount,bind,ro $dir || exit 99
	done
	mount --bind %[1]s /etc && mount -o remount,bind,ro /etc || exit 99
	exec "$@"' sh %[2]s "$@"
`

// X2: no configuration but ours is touched, nor anything else beside our own state: each
// verb, of the plugin and of culvertctl, succeeds where nothing of the node can be written.
func TestPrivilegedX2Conf(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	etc, bin := t.TempDir(), t.TempDir()
	confs := filepath.Join(etc, "cni", "net.d")
	if err := os.MkdirAll(confs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10-calico.conflist", "10-flannel.conf", "87-podman-bridge.conflist", "99-loopback.conf", "culvert.conflist"} {
		text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "bridge"}]}`, name)
		if err := os.WriteFile(filepath.Join(confs, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	node := *c.Nodes[0]
	for _, program := range []string{"culvert", "culvertctl"} {
		script := fmt.Sprintf(readOnly, etc, filepath.Join(node.Bin.Dir, program))
		if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	node.Bin = &netns.Binaries{Dir: bin, Ref: node.Bin.Ref}
	before := snapshot(t, etc)
	p, _ := serve(t, &node, netns.PodSpec{Name: "p", Ports: netns.Both(8080, 80), Bandwidth: &netns.Bandwidth{IngressRate: 1e8}, Conf: masquerading()})
	if err := p.Check(); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	for _, verb := range []string{"STATUS", "GC"} {
		if _, err := node.Exec(verb, nil, node.Conf()); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	ask(t, c.Outside().NS, call("tcp", node.Uplinks[0].V4, 8080), want{server: "p"})
	for _, view := range [][]string{{"status"}, {"pods"}, {"version"}, {"limits", "set", "p", "--egress", "50M"}} {
		node.MustRun(t, "", append([]string{filepath.Join(bin, "culvertctl"), "--pin-path", node.PinPath}, view...)...)
	}
	p.Del(t)
	if after := snapshot(t, etc); !maps.Equal(before, after) {
		t.Errorf("want as before\n%v, got\n%v", before, after)
	}
	// There is a read-only /etc indeed: what is told to write there, cannot.
	inEtc := map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": "/etc/cni/net.d", "subnet": "10.244.0.0/24"}}
	if p, err := node.TryAdd(netns.PodSpec{Name: "writes", NS: netns.New(t, "writes"), Conf: inEtc}); err == nil {
		p.Del(t)
		t.Error("an ADD whose IPAM keeps its addresses in /etc/cni/net.d succeeded")
	}
	// Its IPAM could not be told to take the address back: what tells of it stays until DEL.
	if _, err := node.Exec("DEL", map[string]string{"CNI_CONTAINERID": "writes", "CNI_NETNS": "", "CNI_IFNAME": "eth0"}, node.Conf()); err != nil {
		t.Errorf("DEL: %v", err)
	}
}

// snapshot is each file's content and when anything of it was changed.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || e.IsDir() {
			files[path] = fmt.Sprint(err)
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = fmt.Sprint(info.Mode(), info.ModTime(), string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

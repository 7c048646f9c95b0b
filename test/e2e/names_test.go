// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// S3, CVE-2021-20206: container ids, interface and network names, and the names of
// plugins, are no paths: what could lead out of a directory is an error before anything
// is done, in ADD, CHECK and DEL alike, and nothing of that name is executed or written.
func TestPrivilegedS3Names(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	dir := t.TempDir()
	mark := filepath.Join(dir, "executed")
	evil := filepath.Join(dir, "evil")
	if err := os.WriteFile(evil, fmt.Appendf(nil, "#!/bin/sh\necho >%s\n", mark), 0o755); err != nil {
		t.Fatal(err)
	}
	out := strings.Repeat("../", 20) + strings.TrimPrefix(evil, "/")
	env := func(id, ifname string) map[string]string {
		return map[string]string{"CNI_CONTAINERID": id, "CNI_IFNAME": ifname}
	}
	for _, tc := range []struct {
		name string
		env  map[string]string
		conf map[string]any
	}{
		{"ContainerUp", env("../../x", "eth0"), nil},
		{"ContainerSlash", env("a/b", "eth0"), nil},
		{"ContainerDots", env("..", "eth0"), nil},
		{"ContainerSpace", env("a b", "eth0"), nil},
		{"ContainerNewline", env("a\nb", "eth0"), nil},
		{"InterfaceUp", env("ok", "../x"), nil},
		{"InterfaceSlash", env("ok", "a/b"), nil},
		{"InterfaceDots", env("ok", ".."), nil},
		{"InterfaceColon", env("ok", "a:b"), nil},
		{"InterfaceSpace", env("ok", "a b"), nil},
		{"InterfaceLong", env("ok", "interfacename16c"), nil},
		{"NetworkUp", env("ok", "eth0"), map[string]any{"name": "../../x"}},
		{"NetworkSlash", env("ok", "eth0"), map[string]any{"name": "a/b"}},
		{"NetworkDots", env("ok", "eth0"), map[string]any{"name": ".."}},
		{"IPAMUp", env("ok", "eth0"), map[string]any{"ipam": map[string]any{"type": out}}},
		{"IPAMAbsolute", env("ok", "eth0"), map[string]any{"ipam": map[string]any{"type": evil}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netns.New(t, "p")
			conf := node.Conf()
			maps.Copy(conf, tc.conf)
			tc.env["CNI_NETNS"] = ns.Path()
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				_, err := node.Exec(verb, tc.env, conf)
				if err == nil && verb == "DEL" && tc.conf["ipam"] != nil {
					continue // of what was never there
				}
				if netns.Code(err) == 0 {
					t.Errorf("%s: want a CNI error, got %v", verb, err)
				}
			}
			if _, ok := devices(t, ns)["eth0"]; ok {
				t.Error("there is an interface")
			}
			c.checkEmpty(t, node)
		})
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program outside CNI_PATH was executed")
	}
}

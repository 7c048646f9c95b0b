// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// What a person at a shell does. cnitool keeps its results below /var/lib, which is the
// row's own here; a row ends with the first command that fails, as "!" before one turns.
var toolRows = []struct{ name, script string }{
	{"add, check, del, and del again", `cnitool add net $POD >result; grep -q '"cniVersion": "1.1.0"' result
		cnitool check net $POD; cnitool del net $POD; cnitool del net $POD`},
	{"capabilities by CAP_ARGS", `export CAP_ARGS='{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}'
		cnitool add net $POD >result; culvertctl --pin-path $PIN hostports | grep -q 8080; cnitool check net $POD; cnitool del net $POD`},
	{"an address by CNI_ARGS", `export CNI_ARGS=IP=10.244.0.77
		cnitool add net $POD | grep -q 10.244.0.77/32; cnitool del net $POD`},
	{"another interface by CNI_IFNAME", `export CNI_IFNAME=net1
		cnitool add net $POD >result; nsenter --net=$POD ip link show net1 >result; cnitool check net $POD; cnitool del net $POD`},
	{"check after the results were lost", `cnitool add net $POD >result; rm -r /var/lib/cni; ! cnitool check net $POD 2>result; grep -q prevResult result; cnitool del net $POD`},
	{"status and gc", `cnitool status net $POD; cnitool add net $POD >result; cnitool gc net $POD; ! nsenter --net=$POD ip link show eth0 2>result`},
	{"a namespace that is none", `! cnitool add net /dev/null 2>result; grep -q /dev/null result`},
}

// P1, P3, P6: cnitool.
func TestPrivilegedCnitool(t *testing.T) {
	netns.RequireRoot(t)
	s := newStage(t)
	for _, row := range toolRows {
		try(t, row.name, func(t *testing.T) {
			scene := &scene{stage: s, pod: netns.New(t, "pod"), second: netns.New(t, "second")}
			dir, empty := t.TempDir(), s.footprint(t)
			list := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","plugins":[%s]}`,
				scene.config(t, `"name":null,"cniVersion":null,"capabilities":{"portMappings":true}`))
			if err := os.WriteFile(filepath.Join(dir, "net.conflist"), []byte(list), 0o600); err != nil {
				t.Fatal(err)
			}
			script := fmt.Sprintf("set -eu\nmount -t tmpfs none /var/lib\ncd %s\nexport NETCONFPATH=%s CNI_PATH=%s PATH=%s:$PATH POD=%s PIN=%s\n%s\n",
				dir, dir, s.path(), s.path(), scene.pod.Path(), s.PinPath, commands(row.script))
			if out, err := s.Run(script, "unshare", "--mount", "sh"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			s.unchanged(t, empty)
		})
	}
}

// commands makes "! command" end the script when the command succeeds, which sh -e lets
// pass.
func commands(script string) string {
	var out []string
	for _, line := range strings.FieldsFunc(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		line = strings.TrimSpace(line)
		if command, not := strings.CutPrefix(line, "! "); not {
			line = "if " + command + "; then echo did not fail: " + strings.Fields(command)[0] + "; exit 1; fi"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

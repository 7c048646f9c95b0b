// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// shaped has every kind of thing that a result can tell.
const shaped = `"mtu":1400,"dns":{"nameservers":["10.96.0.10"],"search":["example.org"]},
	"runtimeConfig":{"mac":"02:00:00:00:00:07","dns":{"options":["ndots:5"]}},
	"ipam":{"type":"static","dns":{"domain":"example.com","nameservers":["9.9.9.9"]},
		"addresses":[{"address":"10.244.0.7/24","gateway":"10.244.0.1"},{"address":"fd00:244::7/64"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.0.2.0/24","gw":"10.244.0.99","mtu":1300,"advmss":1200,"priority":50,"table":1000},{"dst":"203.0.113.0/24","scope":253}]}`

// P4: the result, to the letter; testdata/result-VERSION.json. MACs and the host side's name
// follow from network, container and interface.
func TestPrivilegedP4Shape(t *testing.T) {
	netns.RequireRoot(t)
	s := newStage(t)
	for _, version := range []string{"0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		try(t, version, func(t *testing.T) {
			file := "testdata/result-" + version + ".json"
			want, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
			}
			scene := &scene{stage: s, pod: netns.New(t, "pod"), second: netns.New(t, "second")}
			c := call{verb: "ADD", conf: `"cniVersion":"` + version + `",` + shaped}
			a := s.run(t, scene.environ("ADD", "c1", scene.pod, nil), scene.config(t, c.conf))
			defer c.clean(t, scene)
			c.judge(t, a)
			got := strings.ReplaceAll(a.stdout, scene.pod.Path(), "<POD>")
			if got != strings.TrimSuffix(string(want), "\n") {
				t.Errorf("want what is in %s, got:\n%s", file, got)
			}
		})
	}
}

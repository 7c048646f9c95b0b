// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzResult: what an IPAM plugin prints is a result or an error.
func FuzzResult(f *testing.F) {
	f.Add("1.1.0", []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/24","gateway":"10.0.0.254"},{"address":"fd00::1/64"}],"routes":[{"dst":"0.0.0.0/0","mtu":1400}],"dns":{"nameservers":["1.1.1.1"]}}`))
	f.Add("0.4.0", []byte(`{"ips":[{"version":"4","address":"10.0.0.1/24"}]}`))
	f.Add("0.2.0", []byte(`{"ip4":{"ip":"10.0.0.1/24"},"ip6":null}`))
	f.Add("1.0.0", []byte(`{"ips":[null],"routes":[null],"interfaces":[null]}`))
	f.Add("0.3.1", []byte(`null`))
	f.Fuzz(func(t *testing.T, version string, out []byte) {
		stdin, err := json.Marshal(map[string]string{"cniVersion": version})
		if err != nil {
			t.Fatal(err)
		}
		p := &Plugin{Type: "fuzz", Stdin: stdin}
		r, err := p.decode(out)
		if (r == nil) == (err == nil) {
			t.Errorf("result %v, error %v", r, err)
		}
	})
}

// FuzzRequests: what the IPAM plugin reads is JSON if that of the runtime was, and CNI_ARGS
// that the reference library can read.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"args":{"cni":{"ips":["10.0.0.2"]}},"runtimeConfig":{"IPs":["10.0.0.3"]}}`), "IP=10.0.0.1;K8S_POD_NAME=a")
	f.Add([]byte(`{"runtimeConfig":{"ips":[]}}`), ";A;B=c=d;IgnoreUnknown=0;E=f;")
	f.Add([]byte(`{"args":5}`), "=")
	f.Fuzz(func(t *testing.T, stdin []byte, cniArgs string) {
		out, args := requests(stdin, cniArgs)
		if json.Valid(stdin) && !json.Valid(out) {
			t.Errorf("no JSON of %s: %s", stdin, out)
		}
		for i, pair := range strings.Split(args, ";") {
			if args != "" && strings.Count(pair, "=") != 1 || args != "" && i == 0 && pair != "IgnoreUnknown=1" {
				t.Errorf("CNI_ARGS %q becomes %q", cniArgs, args)
			}
		}
		for name := range Args(cniArgs) {
			if name != strings.ToUpper(name) {
				t.Errorf("%q is told apart by its case", name)
			}
		}
	})
}

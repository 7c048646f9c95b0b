// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

var environmentCalls = []call{
	{name: "no verb", verb: "", env: []string{"-CNI_COMMAND"}, code: 4, words: []string{"CNI_COMMAND"}},
	{name: "an unknown verb", verb: "DANCE", code: 4, words: []string{"CNI_COMMAND.*DANCE"}},
	{name: "a verb in small letters", verb: "add", code: 4},
	{name: "ADD: everything is missing", verb: "ADD", env: []string{"-CNI_CONTAINERID", "-CNI_NETNS", "-CNI_IFNAME", "-CNI_PATH"}, code: 4,
		words: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}},
	{name: "CHECK: everything is empty", verb: "CHECK", env: []string{"CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME=", "CNI_PATH="}, code: 4,
		words: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}},
	{name: "ADD: no CNI_CONTAINERID", verb: "ADD", env: []string{"-CNI_CONTAINERID"}, code: 4, words: []string{`\[CNI_CONTAINERID\]`}},
	{name: "ADD: no CNI_NETNS", verb: "ADD", env: []string{"-CNI_NETNS"}, code: 4, words: []string{`\[CNI_NETNS\]`}},
	{name: "ADD: no CNI_IFNAME", verb: "ADD", env: []string{"-CNI_IFNAME"}, code: 4, words: []string{`\[CNI_IFNAME\]`}},
	{name: "ADD: no CNI_PATH", verb: "ADD", env: []string{"-CNI_PATH"}, code: 4, words: []string{`\[CNI_PATH\]`}},
	{name: "DEL: the two that it needs", verb: "DEL", first: "-", env: []string{"CNI_CONTAINERID=", "-CNI_IFNAME"}, code: 4, words: []string{"CNI_CONTAINERID", "CNI_IFNAME"}},
	{name: "DEL: no CNI_NETNS", verb: "DEL", first: "-", env: []string{"-CNI_NETNS"}},
	{name: "GC: no CNI_PATH", verb: "GC", first: "-", env: []string{"-CNI_PATH"}, conf: `"cni.dev/attachments":[]`, code: 4, words: []string{"CNI_PATH"}},
	{name: "STATUS: no CNI_PATH", verb: "STATUS", env: []string{"-CNI_PATH"}, code: 4, words: []string{"CNI_PATH"}},
	{name: "a container with a blank", verb: "ADD", env: []string{"CNI_CONTAINERID=a b"}, code: 4, words: []string{"a b"}},
	{name: "a container of 128 letters", verb: "ADD", env: []string{"CNI_CONTAINERID=" + strings.Repeat("c", 128)}, code: 4, words: []string{"CNI_CONTAINERID", "127"}},
	{name: "an interface of 16 letters", verb: "ADD", env: []string{"CNI_IFNAME=sixteen-letters-"}, code: 4, words: []string{"interface name", "16"}},
	{name: "an interface with a slash", verb: "ADD", env: []string{"CNI_IFNAME=a/b"}, code: 4},
	{name: "an interface that the kernel would number", verb: "ADD", env: []string{"CNI_IFNAME=eth%d"}, code: 4, words: []string{"eth%d"}},
}

var stdinCalls = []call{
	{name: "nothing on stdin", verb: "ADD", stdin: " ", code: 6},
	{name: "half a JSON", verb: "ADD", stdin: `{"cniVersion":"1.1.0","name":"net",`, code: 6},
	{name: "a list", verb: "ADD", stdin: `[]`, code: 6},
	{name: "a string", verb: "DEL", stdin: `"net"`, code: 6},
	{name: "two JSONs", verb: "ADD", stdin: usual + usual, code: 6},
	{name: "no JSON", verb: "GC", stdin: "cniVersion: 1.1.0\nname: net\n", code: 6},
	{name: "a JSON of 20,000 storeys", verb: "ADD", stdin: strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), code: 6},
	{name: "no name", verb: "ADD", conf: `"name":null`, code: 7, words: []string{"name"}},
	{name: "a name that is a path", verb: "DEL", conf: `"name":"../net"`, code: 7, words: []string{"name", "../net"}},
	{name: "a name of 64 letters", verb: "ADD", conf: `"name":"` + strings.Repeat("n", 64) + `"`, code: 7, words: []string{"name: ", "63"}},
	{name: "no ipam", verb: "ADD", conf: `"ipam":null`, code: 7, words: []string{"ipam.type"}},
	{name: "an IPAM plugin that is not there", verb: "ADD", conf: `"ipam":{"type":"nosuch"}`, code: 7, words: []string{"ipam.type", "nosuch"}},
	{name: "an IPAM plugin that prints no JSON", verb: "ADD", conf: `"ipam":{"type":"ipam-rubbish"}`, code: 999, words: []string{"ipam-rubbish"}},
	{name: "an IPAM plugin that dies", verb: "ADD", conf: `"ipam":{"type":"ipam-dies"}`, code: 999, words: []string{"ipam-dies", "no disk"}},
	{name: "an IPAM plugin that says try again", verb: "ADD", conf: `"ipam":{"type":"ipam-later"}`, code: 11, words: []string{"ipam-later", "locked"}},
	{name: "an address that no pod can have", verb: "ADD", conf: `"ipam":{"type":"ipam-loop"}`, code: 999, words: []string{"127.0.0.1"}},
	{name: "a megabyte that nobody asked for", verb: "ADD", conf: `"x":"` + strings.Repeat("x", 1<<20) + `"`},
}

var heldCalls = []call{
	{name: "a hostPort is held", verb: "ADD", other: ports(`{"hostPort":8080,"containerPort":80}`), conf: ports(`{"hostPort":8080,"containerPort":81,"hostIP":"::"}`),
		code: 100, words: []string{`\*:8080/tcp`, "container c2", "interface eth0", "network net"}},
	{name: "a hostPort of one IPv6 address is held", verb: "ADD", other: ports(`{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"fd00:10::10"}`),
		conf: ports(`{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"FD00:10:0::10"}`), code: 100, words: []string{`\[fd00:10::10\]:53/udp`, "c2"}},
	{name: "the last of many hostPorts is held", verb: "ADD", other: ports(`{"hostPort":8083,"containerPort":80}`),
		conf: ports(`{"hostPort":8081,"containerPort":80}`, `{"hostPort":8082,"containerPort":80}`, `{"hostPort":8083,"containerPort":80}`), code: 100, words: []string{":8083/tcp"}},
	{name: "a hostPort of one address is another than that of all", verb: "ADD", other: ports(`{"hostPort":8080,"containerPort":80}`),
		conf: ports(`{"hostPort":8080,"containerPort":81,"hostIP":"10.10.0.10"}`), ports: []string{"*:8080/tcp 46>80", "10.10.0.10:8080/tcp 4>81"}},
	{name: "an IPv4 address is held", verb: "ADD", other: static("10.244.0.7/24"), conf: static("10.244.0.7/24"), code: 101, words: []string{"10.244.0.7", "container c2"}},
	{name: "an IPv6 address is held", verb: "ADD", other: static("10.244.0.7/24", "fd00:244::7/64"), conf: static("10.244.0.6/24", "fd00:244::7/64"), code: 101, words: []string{"fd00:244::7 is held", "c2"}},
	{name: "the interface's name is taken", verb: "ADD", env: []string{"CNI_IFNAME=lo"}, code: 102, words: []string{`\blo\b`}},
}

// ports is a runtimeConfig.
func ports(list ...string) string {
	return `"runtimeConfig":{"portMappings":[` + strings.Join(list, ",") + `]}`
}

// P2: error 4 names every variable that is missing.
func TestPrivilegedP2Environment(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), environmentCalls)
}

// P2: errors 6, 7, 11 and 999. Bad values of each key: test/script's badvalue.txtar.
func TestPrivilegedP2Stdin(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), stdinCalls)
}

// P2: what is held is refused with a code of its own, and the holder is named.
func TestPrivilegedP2Held(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), heldCalls)
}

var netnsCalls = []call{
	{name: "ADD, nothing is there", verb: "ADD", env: []string{"CNI_NETNS=/run/netns/nowhere"}, code: 8, words: []string{"/run/netns/nowhere"}},
	{name: "ADD, a device", verb: "ADD", env: []string{"CNI_NETNS=/dev/null"}, code: 8, words: []string{"/dev/null"}},
	{name: "ADD, a directory", verb: "ADD", env: []string{"CNI_NETNS=/proc/self"}, code: 8},
	{name: "ADD, a file", verb: "ADD", env: []string{"CNI_NETNS=/proc/self/status"}, code: 8},
	{name: "ADD, a namespace of mounts", verb: "ADD", env: []string{"CNI_NETNS=/proc/self/ns/mnt"}, code: 8, words: []string{"/proc/self/ns/mnt"}},
	{name: "ADD, a path without a root", verb: "ADD", env: []string{"CNI_NETNS=netns/pod"}, code: 8},
	{name: "ADD, the plugin's own", verb: "ADD", env: []string{"CNI_NETNS=<NODE>"}, code: 8, words: []string{"plugin itself"}},
	{name: "ADD, the plugin's own by another name", verb: "ADD", env: []string{"CNI_NETNS=/proc/self/ns/net"}, code: 8},
	{name: "ADD, the plugin's own and an override that is none", verb: "ADD", env: []string{"CNI_NETNS=<NODE>", "CNI_NETNS_OVERRIDE=no"}, code: 8},
	{name: "CHECK, nothing is there", verb: "CHECK", env: []string{"CNI_NETNS=/run/netns/nowhere"}, conf: `"prevResult":{}`, code: 8},
	{name: "CHECK, the plugin's own", verb: "CHECK", env: []string{"CNI_NETNS=<NODE>"}, conf: `"prevResult":{}`, code: 8},
	{name: "a bad value is told first", verb: "ADD", env: []string{"CNI_NETNS=/dev/null"}, conf: `"mtu":-5`, code: 7},
	{name: "DEL, nothing is there", verb: "DEL", env: []string{"CNI_NETNS=/run/netns/nowhere"}},
	{name: "DEL, a device", verb: "DEL", env: []string{"CNI_NETNS=/dev/null"}},
}

// P3: CNI_NETNS is looked at before anything is done. That nothing was done is seen by
// what is not even there: our pins and what host-local writes when it allocates.
func TestPrivilegedP3Netns(t *testing.T) {
	netns.RequireRoot(t)
	s := newStage(t)
	calls(t, s, netnsCalls)
	for _, made := range []string{s.PinPath + "/v1", s.DataDir + "/*/last_reserved_ip*"} {
		if found, _ := filepath.Glob(made); len(found) > 0 {
			t.Errorf("made: %v", found)
		}
	}
	calls(t, s, []call{
		{name: "ADD, the plugin's own, with the override", verb: "ADD", env: []string{"CNI_NETNS=<NODE>", "CNI_NETNS_OVERRIDE=true", "CNI_IFNAME=own0"}},
	})
}

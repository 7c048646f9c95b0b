// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// What each version's ADD, CHECK and DEL do is in test/script's version_add.txtar, and
// what their results look like in shape_test.go; here is where versions end.
var versionCalls = []call{
	{name: "VERSION lists all, whatever is on stdin", verb: "VERSION", stdin: `{"cniVersion":`,
		env: []string{"-CNI_CONTAINERID", "-CNI_NETNS", "-CNI_IFNAME", "-CNI_PATH"}, words: []string{`"cniVersion":"1.1.0"`,
			`"supportedVersions":\["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"\]`}},

	{name: "ADD without cniVersion is 0.1.0", verb: "ADD", conf: `"cniVersion":null`, words: []string{`"cniVersion":"0.1.0"`, `"ip4":{"`, `"ip6":{"`}},
	{name: "ADD with an empty cniVersion is 0.1.0", verb: "ADD", conf: `"cniVersion":""`, words: []string{`"cniVersion":"0.1.0"`}},
	{name: "ADD 0.2.0, IPv6 alone", verb: "ADD", conf: `"cniVersion":"0.2.0",` + static("fd00:244::9/64"), words: []string{`^{"cniVersion":"0.2.0","dns":{},"ip6":{"`}},
	{name: "ADD 0.2.0, more addresses than it can tell", verb: "ADD", conf: `"cniVersion":"0.2.0","ipam":{"type":"ipam-many"}`, words: []string{`"ip":"10.244.0.8/32"`}},
	{name: "ADD 0.1.0 with no address", verb: "ADD", conf: `"cniVersion":"0.1.0","ipam":{"type":"ipam-none"}`, code: 7, words: []string{`no address`}},
	{name: "ADD 0.2.0 with no address", verb: "ADD", conf: `"cniVersion":"0.2.0","ipam":{"type":"ipam-none"}`, code: 7, words: []string{`no address`}},
	{name: "ADD 1.1.0 with no address", verb: "ADD", conf: `"ipam":{"type":"ipam-none"}`, code: 7, words: []string{`no address`}},
	{name: "ADD of a version to come", verb: "ADD", conf: `"cniVersion":"1.2.0"`, code: 1, words: []string{`1\.2\.0`, `1\.1\.0`}},
	{name: "ADD of another major version", verb: "ADD", conf: `"cniVersion":"2.0.0"`, code: 1},
	{name: "ADD of no version", verb: "ADD", conf: `"cniVersion":"latest"`, code: 1, words: []string{"latest"}},
	{name: "ADD, cniVersion is a number", verb: "ADD", conf: `"cniVersion":1.1`, code: 6, words: []string{"cniVersion"}},
	{name: "DEL of a version to come", verb: "DEL", first: "-", conf: `"cniVersion":"1.2.0"`, code: 1},
	{name: "DEL 0.3.1, which has no prevResult", verb: "DEL", first: `"cniVersion":"0.3.1"`, conf: `"cniVersion":"0.3.1"`},
	{name: "DEL in a newer version than ADD was", verb: "DEL", first: `"cniVersion":"0.2.0"`, conf: `"prevResult":<RESULT>`},
	{name: "DEL in an older version than ADD was", verb: "DEL", first: `-`, conf: `"cniVersion":"0.4.0","prevResult":<RESULT>`},

	{name: "CHECK 0.3.1", verb: "CHECK", first: `"cniVersion":"0.3.1"`, conf: `"cniVersion":"0.3.1","prevResult":<RESULT>`, code: 1, words: []string{"CHECK"}},
	{name: "CHECK 0.1.0", verb: "CHECK", first: `"cniVersion":"0.1.0"`, conf: `"cniVersion":"0.1.0","prevResult":<RESULT>`, code: 1},
	{name: "CHECK 0.4.0 of what 0.2.0 added", verb: "CHECK", first: `"cniVersion":"0.2.0"`, conf: `"cniVersion":"0.4.0","prevResult":<RESULT>`},
	{name: "CHECK 1.1.0 of what 0.4.0 added", verb: "CHECK", first: `"cniVersion":"0.4.0"`, conf: `"prevResult":<RESULT>`},
	{name: "CHECK 0.4.0 of what 1.1.0 added", verb: "CHECK", first: `-`, conf: `"cniVersion":"0.4.0","prevResult":<RESULT>`},
	{name: "CHECK, the prevResult is of a version to come", verb: "CHECK", first: `-`, conf: `"prevResult":{"cniVersion":"1.2.0","ips":[]}`, code: 7, words: []string{"prevResult: {", "1.2.0"}},
	{name: "CHECK, the prevResult has holes", verb: "CHECK", first: `-`, conf: `"prevResult":{"ips":[null]}`, code: 7, words: []string{"prevResult: {", "null"}},
	{name: "CHECK without prevResult", verb: "CHECK", first: `-`, code: 7, words: []string{"prevResult"}},
	{name: "GC 1.0.0", verb: "GC", first: `-`, conf: `"cniVersion":"1.0.0","cni.dev/attachments":[]`, code: 1, words: []string{"GC"}},
	{name: "GC 0.3.1", verb: "GC", first: `-`, conf: `"cniVersion":"0.3.1","cni.dev/attachments":[]`, code: 1},
	{name: "STATUS 1.0.0", verb: "STATUS", conf: `"cniVersion":"1.0.0"`, code: 1, words: []string{"STATUS"}},
	{name: "STATUS 0.4.0", verb: "STATUS", conf: `"cniVersion":"0.4.0"`, code: 1},
	{name: "STATUS 1.1.0 takes no pod", verb: "STATUS", env: []string{"-CNI_CONTAINERID", "-CNI_NETNS", "-CNI_IFNAME"}},
	{name: "GC 1.1.0 takes no pod", verb: "GC", env: []string{"-CNI_CONTAINERID", "-CNI_NETNS", "-CNI_IFNAME"}},
}

// P1: which verbs there are in which version, and in whose version the answer is.
func TestPrivilegedP1Versions(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), versionCalls)
}

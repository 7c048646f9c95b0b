// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// P5: one spelling after the other of what runtimes ask for.
var spellingCalls = []call{
	{name: "containerd's capitals", verb: "ADD", conf: ports(`{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP","HostIP":""}`), ports: []string{"*:8080/tcp 46>80"}},
	{name: "kubelet's", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":""}`), ports: []string{"*:8080/tcp 46>80"}},
	{name: "capitals all over", verb: "ADD", conf: `"RUNTIMECONFIG":{"PORTMAPPINGS":[{"HOSTPORT":8080,"CONTAINERPORT":80,"PROTOCOL":"UDP","HOSTIP":"::"}]}`, ports: []string{"*:8080/udp 46>80"}},
	{name: "no protocol, no hostIP", verb: "ADD", conf: ports(`{"hostPort":1,"containerPort":65535}`), ports: []string{"*:1/tcp 46>65535"}},
	{name: "hostIP 0.0.0.0 is that of both families", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"0.0.0.0"}`), ports: []string{"*:8080/tcp 46>80"}},
	{name: "hostIP :: is that of both families", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"::"}`), ports: []string{"*:8080/tcp 46>80"}},
	{name: "hostIP of IPv4", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"10.10.0.10"}`), ports: []string{"10.10.0.10:8080/tcp 4>80"}},
	{name: "hostIP of IPv4 in IPv6", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"::ffff:10.10.0.10"}`), ports: []string{"10.10.0.10:8080/tcp 4>80"}},
	{name: "hostIP of IPv6, written at length", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"FD00:10:0:0:0:0:0:0010"}`), ports: []string{"[fd00:10::10]:8080/tcp 6>80"}},
	{name: "hostIP 127.0.0.1", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"127.0.0.1"}`), ports: []string{"127.0.0.1:8080/tcp 4>80"}},
	{name: "hostIP that the node does not have", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"192.0.2.1"}`), ports: []string{"192.0.2.1:8080/tcp 4>80"}},
	{name: "hostIP of a family that the pod lacks", verb: "ADD", conf: static("10.244.0.9/24") + "," + ports(`{"hostPort":8080,"containerPort":80,"hostIP":"fd00:10::10"}`), ports: []string{}},
	{name: "all addresses, of a pod of IPv6 alone", verb: "ADD", conf: static("fd00:244::9/64") + "," + ports(`{"hostPort":8080,"containerPort":80,"hostIP":"0.0.0.0"}`), ports: []string{"*:8080/tcp 6>80"}},
	{name: "the same mapping twice", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80}`, `{"HostPort":8080,"ContainerPort":80,"Protocol":"Tcp","HostIP":"::"}`), ports: []string{"*:8080/tcp 46>80"}},
	{name: "no mapping", verb: "ADD", conf: `"runtimeConfig":{"portMappings":null,"bandwidth":null,"ips":null,"mac":null}`, ports: []string{}},
	{name: "hostIP that is none", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"10.10.0"}`), code: 7, words: []string{`runtimeConfig.portMappings\[0\].hostIP: \\"10.10.0\\"`}},
	{name: "hostIP with a zone", verb: "ADD", conf: ports(`{"hostPort":8080,"containerPort":80,"hostIP":"fe80::1%up0"}`), code: 7, words: []string{"hostIP"}},
	{name: "hostPort 0", verb: "ADD", conf: ports(`{"HostPort":0,"ContainerPort":80}`), code: 7, words: []string{`portMappings\[0\].hostPort: 0`}},
	{name: "hostPort 65536", verb: "ADD", conf: ports(`{"hostPort":1,"containerPort":1}`, `{"hostPort":65536,"containerPort":80}`), code: 7, words: []string{`portMappings\[1\].hostPort: 65536`}},
	{name: "hostPort -1", verb: "ADD", conf: ports(`{"hostPort":-1,"containerPort":80}`), code: 7, words: []string{`hostPort: -1`}},
	{name: "no containerPort", verb: "ADD", conf: ports(`{"hostPort":80}`), code: 7, words: []string{"containerPort"}},
	{name: "a protocol that is none", verb: "ADD", conf: ports(`{"hostPort":80,"containerPort":80,"protocol":"tcp6"}`), code: 7, words: []string{`protocol: \\"tcp6\\"`}},
}

// P6: what is nobody's is ignored, and of several who ask for one thing the strongest gets
// it. For IPv4 and one family at a time: test/script's requests.txtar.
var precedenceCalls = []call{
	{name: "unknown keys", verb: "ADD", conf: `"frobnicate":{"a":[1]},"plugins":[],"disableCheck":"x","args":{"a":5},"capabilities":{"portMappings":true,"aliases":true}`},
	{name: "unknown capabilities", verb: "ADD", conf: `"runtimeConfig":{"aliases":{"a":["b"]},"cgroupPath":"/a","infinibandGUID":"x","io.kubernetes.cri.pod-annotations":{"a":"b"}}`},
	{name: "unknown CNI_ARGS", verb: "ADD", env: []string{"CNI_ARGS=K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;FOO=bar"}},
	{name: "CNI_ARGS that cannot be read", verb: "ADD", env: []string{"CNI_ARGS=;;=;a;b=c=d;IgnoreUnknown=false;IP"}},
	{name: "both families by runtimeConfig, over args and CNI_ARGS", verb: "ADD", env: []string{"CNI_ARGS=IP=10.244.0.50;MAC=02:00:00:00:00:50"},
		conf:  `"args":{"cni":{"ips":["10.244.0.60"],"mac":"02:00:00:00:00:60"}},"runtimeConfig":{"ips":["10.244.0.70","fd00:244::70"],"mac":"02:00:00:00:00:70"}`,
		words: []string{`"address":"10.244.0.70/32"`, `"address":"fd00:244::70/128"`, `"mac":"02:00:00:00:00:70"`}},
	{name: "both families by args.cni, over CNI_ARGS", verb: "ADD", env: []string{"CNI_ARGS=IP=10.244.0.50;MAC=02:00:00:00:00:50"},
		conf:  `"args":{"cni":{"ips":["10.244.0.60","fd00:244::60"],"mac":"02:00:00:00:00:60"}}`,
		words: []string{`"address":"10.244.0.60/32"`, `"address":"fd00:244::60/128"`, `"mac":"02:00:00:00:00:60"`}},
	{name: "each by another way", verb: "ADD", env: []string{"CNI_ARGS=MAC=02:00:00:00:00:50"}, conf: `"args":{"cni":{"ips":["fd00:244::60"]}},"runtimeConfig":{"ips":[],"mac":""}`,
		words: []string{`"address":"fd00:244::60/128"`, `"mac":"02:00:00:00:00:50"`}},
	{name: "a bad MAC in CNI_ARGS", verb: "ADD", env: []string{"CNI_ARGS=MAC=x"}, code: 7, words: []string{"MAC in CNI_ARGS: x"}},
}

// P5.
func TestPrivilegedP5Spellings(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), spellingCalls)
}

// P6.
func TestPrivilegedP6Precedence(t *testing.T) {
	netns.RequireRoot(t)
	calls(t, newStage(t), precedenceCalls)
}

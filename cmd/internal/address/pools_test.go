// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

const pooled = `,"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd01::/64"}]],
	"pools":{
		"blue":{"ranges":[[{"subnet":"10.2.0.0/24"}],[{"subnet":"fd02::/120"}]]},
		"Red":{"Ranges":[{"subnet":"10.3.0.0/24"},{"subnet":"10.4.0.0/24"}]},
		"own":{"ranges":[[{"subnet":"10.1.0.0/24"}]]},
		"away":{"ranges":[]}, "void":{}, "null":null},
	"namespacePools":{"shop":["red","blue"],"web":["away"],"all":[]}`

// annotated asks for pools as containerd does.
func annotated(value string) string {
	text, _ := json.Marshal(map[string]any{"IO.kubernetes.cri.pod-annotations": map[string]string{"other": "x", "culvert.dev/ipPools": value}})
	return `"runtimeConfig":` + string(text)
}

// A pod's annotation goes before its namespace's pools, and these before the network's ranges.
func TestChoose(t *testing.T) {
	const own, blue = "[10.1.0.1-10.1.0.255] [fd01::1-fd01::ffff:ffff:ffff:ffff]", "[10.2.0.1-10.2.0.255] [fd02::1-fd02::ff]"
	const red = "10.3.0.1-10.3.0.255, 10.4.0.1-10.4.0.255"
	for _, tt := range []struct{ name, top, args, want, noRange string }{
		{name: "nobody asks", want: own},
		{name: "another namespace", args: "K8S_POD_NAMESPACE=other", want: own},
		{name: "a namespace without pools", args: "K8S_POD_NAMESPACE=all", want: own},
		{name: "a namespace", args: "IgnoreUnknown=1;k8s_pod_namespace=shop", want: "[" + red + ", 10.2.0.1-10.2.0.255] [fd02::1-fd02::ff]"},
		{name: "a pod", top: annotated("blue"), want: blue},
		{name: "a pod in a namespace", top: annotated(`["blue"]`), args: "K8S_POD_NAMESPACE=shop", want: blue},
		{name: "in the pod's order", top: annotated(" blue, RED ,blue"), want: "[10.2.0.1-10.2.0.255, " + red + "] [fd02::1-fd02::ff]"},
		{name: "one family", top: annotated(`["red"]`), want: "[" + red + "]"},
		{name: "the network's own range as a pool", top: annotated("own"), want: "[10.1.0.1-10.1.0.255]"},
		{name: "an empty annotation", top: annotated(" "), want: own},
		{name: "an empty list", top: annotated("[]"), args: "K8S_POD_NAMESPACE=shop", want: "[" + red + ", 10.2.0.1-10.2.0.255] [fd02::1-fd02::ff]"},
		{name: "elsewhere", top: annotated("blue,away"), noRange: `"away"`},
		{name: "elsewhere, for a namespace", args: "K8S_POD_NAMESPACE=web", noRange: `"away"`},
		{name: "without ranges", top: annotated("void"), noRange: `"void"`},
		{name: "null", top: annotated("null"), noRange: `"null"`},
		{name: "unknown", top: annotated("x"), noRange: `"x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse([]byte(config(pooled, tt.top)), tt.args)
			if tt.noRange != "" {
				if !errors.Is(err, ErrNoRange) || !strings.Contains(err.Error(), tt.noRange) || Coded(err).Code != types.ErrTryAgainLater {
					t.Errorf("got %v, want one about %s", err, tt.noRange)
				}
			} else if err != nil || describe(c.Sets) != tt.want {
				t.Errorf("got %v, %v, want %s", c, err, tt.want)
			}
			// What the pod wants is nothing to the node's state, nor does CHECK mind.
			if c, err := ParseForStatus([]byte(config(pooled, tt.top))); err != nil || describe(c.Sets) != own {
				t.Errorf("STATUS: %v, %v", c, err)
			}
			if c, err := ParseForCheck([]byte(config(pooled, tt.top))); err != nil || len(c.Sets) != 6 {
				t.Errorf("CHECK: %v, %v", c, err)
			}
		})
	}
}

// A gateway of a pool is given to nobody, whichever range it lies in; nor is what is reserved.
func TestPoolsReserve(t *testing.T) {
	text := config(`,"subnet":"10.1.0.0/16","pools":{"blue":{"ranges":[[{"subnet":"10.1.7.0/24","gateway":"10.1.7.9"}]]}},"reserved":["10.1.7.64/26","::ffff:10.1.8.8"]`, annotated("blue"))
	pool, err := Parse([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	own, err := ParseForStatus([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.1.7.0", "10.1.7.9", "10.1.7.255", "10.1.7.64", "10.1.7.127", "10.1.8.8"} {
		if pool.Sets[0].Gives(addr(a)) || own.Sets[0].Gives(addr(a)) {
			t.Errorf("gives %s", a)
		}
	}
	if !pool.Sets[0].Gives(addr("10.1.7.128")) || pool.Sets[0].Size() != 255-2-64 {
		t.Errorf("gives %d", pool.Sets[0].Size())
	}
}

// Where the network has no range, as yet, a pod has to wait, and the node is not ready.
func TestNoRange(t *testing.T) {
	for _, keys := range []string{`,"pools":{}`, `,"ranges":[]`} {
		noRange(t, []byte(config(keys, ``)))
	}
}

func noRange(t *testing.T, text []byte) {
	t.Helper()
	if _, err := Parse(text, ""); !errors.Is(err, ErrNoRange) || Coded(err).Code != types.ErrTryAgainLater {
		t.Errorf("ADD: %v", err)
	}
	_, err := ParseForStatus(text)
	if got := Coded(unavailable(err)); got.Code != types.ErrPluginNotAvailable {
		t.Errorf("STATUS: %+v", got)
	}
	if _, err := ParseForCheck(text); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

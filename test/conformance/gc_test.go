// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/test/netns"
)

// How GC names its attachments, over the raw configuration; who is in a list of libcni's
// comes in both keys.
var collections = []habit{
	{name: "at start, when nothing is loaded", do: func(r *runtime) error {
		err := os.RemoveAll(r.PinPath + "/v1")
		a := rt("c1", r.pod, web)
		return errors.Join(err, r.gc(), r.add(a), r.check(a), r.del(a))
	}},
	{name: "by libcni, who is named stays", do: func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c2", r.second)
		return errors.Join(r.add(a), r.add(b), r.gc("c1"), r.has("c1"), r.check(a), r.del(a))
	}},
	{name: "by libcni, who is named stays though its cache is lost", do: func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c2", r.second)
		return errors.Join(r.add(a), r.add(b), r.forget(), r.gc("c2"), r.has("c2"), r.gc())
	}},
	{name: "by libcni, nobody is named", do: func(r *runtime) error {
		return errors.Join(r.add(rt("c1", r.pod, web)), r.add(rt("c2", r.second)), r.forget(), r.gc())
	}},
	{name: "key cni.dev/attachments", do: gcBy(`"cni.dev/attachments":[{"containerID":"c1","ifname":"eth0"}]`, "c1")},
	{name: "key cni.dev/valid-attachments", do: gcBy(`"cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"}]`, "c2")},
	{name: "an empty list is one", do: gcBy(`"cni.dev/attachments":[]`)},
	{name: "no list, all live", do: gcBy(``, "c1", "c2")},
	{name: "null is no list", do: gcBy(`"cni.dev/valid-attachments":null`, "c1", "c2")},
	{name: "no list, one is dead", do: func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c2", r.second)
		err := errors.Join(r.add(a), r.add(b))
		r.pod.Close()
		return errors.Join(err, r.raw("GC", ""), r.has("c2"), r.addresses(1), r.check(b), r.del(b))
	}},
	{name: "a list that is none frees nothing", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		return errors.Join(r.add(a), fails(7, r.raw("GC", `"cni.dev/attachments":{"containerID":"c1"}`)),
			fails(7, r.raw("GC", `"cni.dev/attachments":[{"containerID":"c1"}]`)), r.has("c1"), r.check(a), r.del(a))
	}},
	{name: "another interface of a pod that is named goes", do: func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c1", r.pod)
		b.IfName = "net1"
		return errors.Join(r.add(a), r.add(b), r.raw("GC", `"cni.dev/attachments":[{"containerID":"c1","ifname":"eth0"}]`),
			r.has("c1"), r.addresses(1), r.check(a), r.gc())
	}},
	{name: "the IPAM plugin fails: ours are gone, and its word passes", plugins: []string{`"ipam":{"type":"ipam-nogc","dataDir":"<IPAM>","ranges":[[{"subnet":"10.244.0.0/24"}]]}`},
		do: func(r *runtime) error {
			a, b := rt("c1", r.pod, web), rt("c2", r.second)
			return errors.Join(r.add(a), r.add(b), r.forget(), fails(60, r.gc("c1")), r.has("c1"), r.del(a), r.del(b))
		}},
}

// gcBy runs GC of the plugin itself with two pods that live.
func gcBy(keys string, left ...string) func(*runtime) error {
	return func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c2", r.second)
		err := errors.Join(r.add(a), r.add(b), r.raw("GC", keys), r.has(left...), r.addresses(len(left)))
		return errors.Join(err, r.del(a), r.del(b))
	}
}

// P10: GC.
func TestPrivilegedP10GC(t *testing.T) {
	netns.RequireRoot(t)
	habits(t, newStage(t), collections)
}

// P10: GC goes on after an error of its own: a row that cannot be deleted keeps neither the
// other pods nor the IPAM plugin's addresses.
func TestPrivilegedP10GoesOn(t *testing.T) {
	netns.RequireRoot(t)
	s := newStage(t)
	s.PinPath = netns.PinPath(t) // spoilt by this test, and so for no other
	scene := &scene{stage: s, pod: netns.New(t, "pod"), second: netns.New(t, "second")}
	r := newRuntime(t, scene, "1.1.0", "")
	try(t, "a table that cannot be written", func(t *testing.T) {
		if err := errors.Join(r.add(rt("c1", r.pod, web)), r.add(rt("c2", r.second)), r.forget()); err != nil {
			t.Fatal(err)
		}
		limits, err := ebpf.LoadPinnedMap(filepath.Join(s.PinPath, "v1/maps/limits"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer limits.Close()
		if err := limits.Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fails(999, r.gc()), r.addresses(0)); err != nil {
			t.Error(err)
		}
		for _, ns := range []*netns.NS{r.pod, r.second} {
			if _, err := ns.Run("", "ip", "link", "show", "eth0"); err == nil {
				t.Error("a pod has its interface")
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/culvert-cni/culvert/test/netns"
)

// habit is a row: what a runtime does to pods c1 and c2, in the namespaces pod and second.
// Nothing may be left of them afterwards.
type habit struct {
	name    string
	version string   // of the conflist; default 1.1.0
	plugins []string // default culvert alone; the keys of each over the usual configuration
	do      func(r *runtime) error
}

func habits(t *testing.T, s *stage, table []habit) {
	t.Helper()
	for _, h := range table {
		try(t, h.name, func(t *testing.T) {
			scene := &scene{stage: s, pod: netns.New(t, "pod"), second: netns.New(t, "second")}
			empty := s.footprint(t)
			if h.version == "" {
				h.version = "1.1.0"
			}
			if h.plugins == nil {
				h.plugins = []string{""}
			}
			r := newRuntime(t, scene, h.version, h.plugins...)
			if err := h.do(r); err != nil {
				t.Error(err)
			}
			s.unchanged(t, empty)
			for _, id := range []string{"c1", "c2"} { // for the next row
				s.run(t, scene.environ("DEL", id, s.gone(), nil), scene.config(t, h.plugins[0]))
			}
		})
	}
}

// gone is a namespace that is closed: its path is empty.
func (s *stage) gone() *netns.NS { return &netns.NS{} }

func fails(with uint, err error) error {
	if got := code(err); err == nil || got != with {
		return fmt.Errorf("want error %d, got %d: %w", with, got, err)
	}
	return nil
}

// has is an error unless exactly these pods have rows.
func (r *runtime) has(want ...string) error {
	if got := r.owners(); !slices.Equal(got, want) {
		return fmt.Errorf("rows of %q, want %q", got, want)
	}
	return nil
}

const web = `"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":""}],"bandwidth":{"IngressRate":10000000,"IngressBurst":4294967295}`

var runtimeHabits = []habit{
	{name: "loopback beside ADD, CHECK straight after", do: func(r *runtime) error {
		a, done := rt("c1", r.pod, web), make(chan error)
		go func() { done <- r.loopback("ADD") }()
		return errors.Join(r.add(a), <-done, r.check(a), r.loopback("DEL"), r.del(a))
	}},
	{name: "two DELs, the second without the namespace", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := errors.Join(r.add(a), r.del(a))
		a.NetNS = ""
		return errors.Join(err, r.del(a))
	}},
	{name: "DEL after the namespace went", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := r.add(a)
		r.pod.Close()
		return errors.Join(err, r.del(a))
	}},
	{name: "DEL after its successor has the hostPort and the path", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := r.add(a)
		r.pod.Close()
		b := rt("c2", r.second, web)
		err = errors.Join(err, r.add(b), r.del(a), r.has("c2"), r.check(b))
		return errors.Join(err, r.del(b))
	}},
	{name: "DEL after a reboot", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := errors.Join(r.add(a), os.RemoveAll(r.PinPath+"/v1"), os.RemoveAll(r.DataDir))
		r.pod.Close()
		a.NetNS = ""
		return errors.Join(err, r.del(a))
	}},
	{name: "DEL of a pod that was never added", do: func(r *runtime) error { return r.del(rt("c1", r.pod, web)) }},
	{name: "DEL after a refused ADD", do: func(r *runtime) error {
		b, a := rt("c2", r.second, web), rt("c1", r.pod, web)
		return errors.Join(r.add(b), fails(100, r.add(a)), r.del(a), r.has("c2"), r.check(b), r.del(b))
	}},
	{name: "DEL with the cached result lost", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		return errors.Join(r.add(a), r.forget(), r.del(a))
	}},
	{name: "DEL without the capabilities of ADD", do: func(r *runtime) error {
		return errors.Join(r.add(rt("c1", r.pod, web)), r.forget(), r.del(rt("c1", r.pod)))
	}},
	{name: "CHECK with the cached result lost", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		return errors.Join(r.add(a), r.forget(), fails(7, r.check(a)), r.del(a))
	}},
	{name: "a list of 0.3.1: no CHECK, no prevResult at DEL", version: "0.3.1", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := errors.Join(r.add(a), r.del(a))
		return err
	}},
	{name: "a list of 0.4.0 becomes 1.1.0", version: "0.4.0", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := errors.Join(r.add(a), r.check(a))
		r.configure("1.1.0", "")
		return errors.Join(err, r.check(a), r.status(), r.gc("c1"), r.has("c1"), r.del(a))
	}},
	{name: "a list of 1.1.0 becomes 0.4.0", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := r.add(a)
		r.configure("0.4.0", "")
		return errors.Join(err, r.check(a), r.del(a))
	}},
	{name: "a list of 0.2.0", version: "0.2.0", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		return errors.Join(r.add(a), r.del(a))
	}},
	{name: "ADD again without DEL", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		return errors.Join(r.add(a), r.add(a), r.check(a), r.has("c1"), r.del(a))
	}},
	{name: "ADD again in a new namespace", do: func(r *runtime) error {
		a := rt("c1", r.pod, web)
		err := r.add(a)
		r.pod.Close()
		a = rt("c1", r.second, web)
		return errors.Join(err, r.add(a), r.check(a), r.has("c1"), r.del(a))
	}},
	{name: "two interfaces of a pod", do: func(r *runtime) error {
		a, b := rt("c1", r.pod, web), rt("c1", r.pod)
		b.IfName = "net1"
		return errors.Join(r.add(a), r.add(b), r.check(a), r.check(b), r.del(a), r.check(b), r.has("c1"), r.del(b))
	}},
	{name: "eight pods at once", do: func(r *runtime) error {
		done := make(chan error)
		for i := range 8 {
			go func() {
				ns, err := netns.TryNew("many")
				if err != nil {
					done <- err
					return
				}
				defer ns.Close()
				a := rt(fmt.Sprintf("many%d", i), ns, fmt.Sprintf(`"portMappings":[{"HostPort":%d,"ContainerPort":80}]`, 9000+i))
				done <- errors.Join(r.add(a), r.check(a), r.del(a))
			}()
		}
		var errs []error
		for range 8 {
			errs = append(errs, <-done)
		}
		return errors.Join(errs...)
	}},
	{name: "STATUS before anything", do: func(r *runtime) error { return r.status() }},
}

// Behind culvert come others, which work on its result.
var chainHabits = []habit{
	{name: "tuning, sbr and firewall behind", plugins: []string{"", tuning, `"type":"sbr","ipam":null`, `"type":"firewall","backend":"iptables","ipam":null`},
		do: func(r *runtime) error {
			a := rt("c1", r.pod, web)
			return errors.Join(r.add(a), r.check(a), r.status(), r.gc("c1"), r.check(a), r.del(a), r.del(a))
		}},
	{name: "the same in 0.4.0", version: "0.4.0", plugins: []string{"", tuning, `"type":"sbr","ipam":null`, `"type":"firewall","backend":"iptables","ipam":null`},
		do: func(r *runtime) error {
			a := rt("c1", r.pod, web)
			return errors.Join(r.add(a), r.check(a), r.del(a))
		}},
	{name: "one behind fails: the runtime deletes all", plugins: []string{"", `"type":"tuning","ipam":null,"sysctl":{"net.no.such":"1"}`},
		do: func(r *runtime) error {
			a := rt("c1", r.pod, web)
			if r.add(a) == nil {
				return errors.New("ADD did not fail")
			}
			return errors.Join(r.has("c1"), r.del(a))
		}},
}

const tuning = `"type":"tuning","ipam":null,"mtu":1400,"sysctl":{"net.ipv4.conf.IFNAME.log_martians":"1"},"dataDir":"<IPAM>/tuning"`

// loopback is what containerd runs beside the network's ADD.
func (r *runtime) loopback(verb string) error {
	list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"0.3.1","name":"cni-loopback","plugins":[{"type":"loopback"}]}`))
	if err != nil {
		return err
	}
	c := rt("c1", r.pod)
	c.IfName = "lo"
	if verb == "ADD" {
		_, err = r.cni.AddNetworkList(context.Background(), list, c)
		return err
	}
	return r.cni.DelNetworkList(context.Background(), list, c)
}

// Issue 5, item 6: what runtimes do, the way they do it.
func TestPrivilegedHabits(t *testing.T) {
	netns.RequireRoot(t)
	habits(t, newStage(t), runtimeHabits)
}

// P4: other plugins work behind culvert.
func TestPrivilegedP4Chain(t *testing.T) {
	netns.RequireRoot(t)
	s := newStage(t)
	habits(t, s, chainHabits)
	if left := s.MustRun(t, "", "nft", "list", "ruleset"); strings.Contains(left, "10.244.0.") {
		t.Errorf("rules left: %s", left)
	}
}

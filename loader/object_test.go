// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
)

func object(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What config.h leaves to the loader is set here, and nothing else is.
func TestVariablesAreThoseOfTheObject(t *testing.T) {
	spec := object(t)
	set := variables(kernelHas{conntrack: true}, bpf.Clock{})
	for name := range spec.Variables {
		if _, ok := set[name]; !ok {
			t.Errorf("variable %s of the object is not set in config.go", name)
		}
	}
	for name := range set {
		if spec.Variables[name] == nil {
			t.Errorf("config.go sets %s, which the object has not", name)
		}
	}
	if err := configure(spec, kernelHas{conntrack: true}); err != nil {
		t.Error(err)
	}
}

func TestProgramsAreThoseOfTheObject(t *testing.T) {
	var names []string
	for name := range object(t).Programs {
		names = append(names, name)
	}
	want := programs()
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("object has %v, the loader attaches %v", names, want)
	}
}

func TestLinkNames(t *testing.T) {
	for _, h := range allHooks() {
		ifindex := 42
		if h.device == "lo" || h.device == "cgroup" {
			ifindex = loIfindex
		}
		for _, clsact := range []bool{false, true} {
			name := linkName(h, ifindex)
			if clsact {
				name += "_clsact"
			}
			a, ok := parseLinkName(name)
			if !ok || a.hook != h || a.ifindex != ifindex || a.clsact != clsact {
				t.Errorf("%s is read as %+v, %v", name, a, ok)
			}
			if strings.Contains(name, ".") {
				t.Errorf("%s: bpffs refuses dots", name)
			}
		}
	}
	for _, name := range []string{"", "uplink", "uplink_x_in", "uplink_3_in_out", "lo_in", "other_3_in", "uplink_-3_in"} {
		if a, ok := parseLinkName(name); ok {
			t.Errorf("%q is read as %+v", name, a)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		kind error
	}{
		{"EPERM", fmt.Errorf("load object: %w", unix.EPERM), ErrDenied},
		{"EACCES of a directory", fmt.Errorf("open map: %w", unix.EACCES), ErrDenied},
		{"layout", fmt.Errorf("load object: %w", ebpf.ErrMapIncompatible), ErrLayout},
		{"kernel", fmt.Errorf("load object: %w", ebpf.ErrNotSupported), ErrKernel},
	} {
		got := explain("/sys/fs/bpf/x", c.err)
		var fault Fault
		if !errors.As(got, &fault) || !errors.Is(got, c.kind) || !errors.Is(got, c.err) || fault.Remedy == "" {
			t.Errorf("%s: %v", c.name, got)
		}
		if again := explain("/sys/fs/bpf/x", got); again.Error() != got.Error() {
			t.Errorf("%s: explained twice: %v", c.name, again)
		}
	}
	for _, err := range []error{errors.New("else"), &ebpf.VerifierError{Cause: unix.EACCES}} {
		if got := explain("/sys/fs/bpf/x", err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// The floor is 6.1: what is older is told in a sentence, before the verifier says it in its way.
func TestKernelTooOld(t *testing.T) {
	for release, old := range map[string]bool{
		"5.10.0-46-cloud-amd64": true, "5.15.0": true, "6.0.19": true, "4.19.0": true,
		"6.1.0-57-cloud-amd64": false, "6.12.118+deb13-cloud-amd64": false, "7.0.0": false, "7.3.4+deb13-cloud-amd64": false, "odd": false,
	} {
		err := checkRelease(release)
		if (err != nil) != old {
			t.Errorf("%s: %v", release, err)
		}
		var fault Fault
		if old && (!errors.As(err, &fault) || !errors.Is(err, ErrKernel) || !strings.Contains(fault.What, release) || !strings.Contains(fault.Remedy, "6.1")) {
			t.Errorf("%s: %v, want a sentence that names it and 6.1", release, err)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	p := Options{}.withDefaults().patience
	unlock, err := p.lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		unlock, err := p.lock(dir)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	select {
	case <-got:
		t.Fatal("two hold the lock")
	case <-time.After(50 * time.Millisecond): // nothing to poll for: it must not happen
	}
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

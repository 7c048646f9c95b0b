// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/culvert-cni/culvert/bpf"
)

// Every enum of types.h that a row carries has its names here, and they are the C ones.
func TestNamesCoverEnums(t *testing.T) {
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	for name, spell := range map[string]func(uint64) string{
		"direction":   func(v uint64) string { return Direction(v).String() },
		"shaper":      func(v uint64) string { return Shaper(v).String() },
		"side":        func(v uint64) string { return Side(v).String() },
		"hook":        func(v uint64) string { return Hook(v).String() },
		"drop_reason": func(v uint64) string { return DropReason(v).String() },
		"flow_action": func(v uint64) string { return FlowAction(v).String() },
		"flow_flag":   func(v uint64) string { return FlowFlags(v).String() },
		"flow_state":  func(v uint64) string { return FlowState(v).String() },
		"pod_flag":    func(v uint64) string { return PodFlags(v).String() },
		"remote_kind": func(v uint64) string { return RemoteKind(v).String() },
		"verdict":     func(v uint64) string { return Verdict(v).String() },
		"feature":     func(v uint64) string { return Features(v).String() },
	} {
		var enum *btf.Enum
		if err := spec.Types.TypeByName(name, &enum); err != nil {
			t.Errorf("enum %s: %v", name, err)
			continue
		}
		for _, v := range enum.Values {
			if strings.HasSuffix(v.Name, "_MAX") {
				continue
			}
			got := spell(v.Value)
			if name == "direction" { // spelled in CNI's words
				got = map[string]string{"ingress": "to_pod", "egress": "from_pod"}[got]
			}
			if got == "" || !strings.HasSuffix(strings.ToLower(v.Name), got) {
				t.Errorf("%s (%d) of enum %s is called %q", v.Name, v.Value, name, got)
			}
		}
	}
}

func TestNamesOfUnknown(t *testing.T) {
	if got := DropReason(999).String(); got != "999" {
		t.Errorf("unknown reason is called %q", got)
	}
	flags := PodFlags(1<<31) | PodSourceCheck
	if got := flags.String(); got != "source_check,bit31" {
		t.Errorf("unknown flag is called %q", got)
	}
	if got := PodFlags(0).Names(); got == nil || len(got) != 0 {
		t.Errorf("no flags give %#v, JSON wants []", got)
	}
	if got := ProtoName(47); got != "47" {
		t.Errorf("protocol 47 is called %q", got)
	}
}

// The structs go to the kernel as they lie in memory: a hole would be part of a key.
func TestRowsHaveNoHoles(t *testing.T) {
	spec, err := bpf.LoadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range spec.Maps {
		if name[0] == '.' {
			continue
		}
		if len(name) > 15 || !regexp.MustCompile(`^[a-z]+$`).MatchString(name) {
			t.Errorf("map name %q", name)
		}
		for _, typ := range []btf.Type{m.Key, m.Value} {
			if s, ok := btf.As[*btf.Struct](typ); ok {
				checkHoles(t, s)
			}
		}
	}
}

func checkHoles(t *testing.T, s *btf.Struct) {
	var end uint32
	for _, m := range s.Members {
		if m.Name == "" || m.Offset.Bytes() != end {
			t.Errorf("struct %s: member %q at byte %d, the one before ends at %d", s.Name, m.Name, m.Offset.Bytes(), end)
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		end += uint32(size)
		if inner, ok := btf.As[*btf.Struct](m.Type); ok {
			checkHoles(t, inner)
		}
	}
	if end != s.Size {
		t.Errorf("struct %s: members end at byte %d, size %d", s.Name, end, s.Size)
	}
}

// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var (
	u8  = &btf.Int{Name: "__u8", Size: 1}
	u16 = &btf.Int{Name: "__u16", Size: 2}
	u32 = &btf.Int{Name: "__u32", Size: 4}
	s32 = &btf.Int{Name: "__s32", Size: 4, Encoding: btf.Signed}
	s64 = &btf.Int{Name: "__s64", Size: 8, Encoding: btf.Signed}
)

// member is a field behind those before.
type member struct {
	name string
	t    btf.Type
}

func structOf(members ...member) *btf.Struct {
	s := &btf.Struct{Name: "s"}
	for _, m := range members {
		size, _ := btf.Sizeof(m.t)
		s.Members = append(s.Members, btf.Member{Name: m.name, Type: m.t, Offset: btf.Bits(s.Size * 8)})
		s.Size += uint32(size)
	}
	return s
}

func array(t btf.Type, n uint32) btf.Type { return &btf.Array{Index: u32, Type: t, Nelems: n} }

func TestConvert(t *testing.T) {
	inner := structOf(member{"x", u16}, member{"y", u16})
	innerBack := structOf(member{"y", u16}, member{"x", u16})
	src := structOf(
		member{"a", u32}, member{"b", s32}, member{"left", u32}, member{"name", array(u8, 4)},
		member{"list", array(inner, 2)}, member{"e", &btf.Enum{Name: "e", Size: 1}}, member{"narrow", u32},
	)
	dst := structOf(
		member{"new", u16}, member{"b", s64}, member{"a", &btf.Typedef{Name: "t", Type: u32}},
		member{"list", array(innerBack, 3)}, member{"name", array(u8, 6)}, member{"e", u32}, member{"narrow", u16},
	)
	c, err := newConverter(dst, src)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	row := le.AppendUint32(nil, 0x01020304)
	minus := int32(-5)
	row = le.AppendUint32(row, uint32(minus))
	row = le.AppendUint32(row, 99)
	row = append(row, "abcd"...)
	for _, n := range []uint16{1, 2, 3, 4} {
		row = le.AppendUint16(row, n)
	}
	row = append(row, 7)
	row = le.AppendUint32(row, 0x10002)
	want := le.AppendUint16(nil, 0)
	minus64 := int64(-5)
	want = le.AppendUint64(want, uint64(minus64))
	want = le.AppendUint32(want, 0x01020304)
	for _, n := range []uint16{2, 1, 4, 3, 0, 0} {
		want = le.AppendUint16(want, n)
	}
	want = append(want, 'a', 'b', 'c', 'd', 0, 0)
	want = le.AppendUint32(want, 7)
	want = le.AppendUint16(want, 2)
	if got := c.convert(row); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	if sameLayout(dst, src) || !sameLayout(src, src) || sameLayout(inner, innerBack) {
		t.Error("layouts are compared wrongly")
	}
	for name, bad := range map[string]btf.Type{
		"struct for a number": structOf(member{"a", inner}),
		"array for a number":  structOf(member{"a", array(u8, 4)}),
		"number for an array": structOf(member{"name", u32}),
		"pointer":             structOf(member{"a", &btf.Pointer{Target: u32}}),
	} {
		if _, err := newConverter(bad, src); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A table that has not changed is the same to itself, and to convert it changes nothing.
func TestConvertOwnTables(t *testing.T) {
	for name, m := range object(t).Maps {
		if m.Key == nil || name[0] == '.' {
			continue
		}
		for _, typ := range []btf.Type{m.Key, m.Value} {
			if !sameLayout(typ, btf.Copy(typ)) {
				t.Errorf("%s: %s is not the same as itself", name, typ.TypeName())
			}
			c, err := newConverter(typ, typ)
			if err != nil || len(c.ops) != 1 || int(c.ops[0].dstSize) != c.size {
				t.Errorf("%s: %s: %v %+v: want one move of all its bytes", name, typ.TypeName(), err, c)
			}
		}
	}
}

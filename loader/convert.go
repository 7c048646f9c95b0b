// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// converter copies rows of one layout into another, field by field: by their names in the
// type information that the kernel has of each table. A field that only one side has is
// zero, or left out. It needs to know nothing of any version.
type converter struct {
	ops  []move
	size int // of what comes out
}

// move copies bytes. Numbers are little-endian: a wider one is filled up.
type move struct {
	dst, src         uint32
	dstSize, srcSize uint32
	signed           bool
}

var errUnlike = errors.New("no number and no struct on both sides")

func newConverter(dst, src btf.Type) (*converter, error) {
	size, err := btf.Sizeof(dst)
	if err != nil {
		return nil, err
	}
	c := &converter{size: size}
	return c, c.add(dst, src, 0, 0)
}

// convert gives the row as dst has it.
func (c *converter) convert(src []byte) []byte {
	dst := make([]byte, c.size)
	for _, m := range c.ops {
		n := copy(dst[m.dst:m.dst+m.dstSize], src[m.src:m.src+m.srcSize])
		if m.signed && dst[int(m.dst)+n-1]&0x80 != 0 {
			for i := n; i < int(m.dstSize); i++ {
				dst[int(m.dst)+i] = 0xff
			}
		}
	}
	return dst
}

func (c *converter) add(dst, src btf.Type, to, from uint32) error {
	dst, src = btf.UnderlyingType(dst), btf.UnderlyingType(src)
	switch d := dst.(type) {
	case *btf.Struct:
		s, ok := src.(*btf.Struct)
		if !ok {
			return errUnlike
		}
		return c.addStruct(d, s, to, from)
	case *btf.Array:
		s, ok := src.(*btf.Array)
		if !ok {
			return errUnlike
		}
		return c.addArray(d, s, to, from)
	}
	dstSize, _, ok := number(dst)
	srcSize, signed, ok2 := number(src)
	if !ok || !ok2 {
		return errUnlike
	}
	c.append(move{to, from, dstSize, srcSize, signed && dstSize > srcSize})
	return nil
}

func (c *converter) addStruct(dst, src *btf.Struct, to, from uint32) error {
	fields := map[string]btf.Member{}
	for _, m := range src.Members {
		fields[m.Name] = m
	}
	for _, d := range dst.Members {
		s, ok := fields[d.Name]
		if !ok {
			continue
		}
		if d.BitfieldSize != 0 || s.BitfieldSize != 0 {
			return fmt.Errorf("field %s: is a bit field", d.Name)
		}
		if err := c.add(d.Type, s.Type, to+d.Offset.Bytes(), from+s.Offset.Bytes()); err != nil {
			return fmt.Errorf("field %s: %w", d.Name, err)
		}
	}
	return nil
}

func (c *converter) addArray(dst, src *btf.Array, to, from uint32) error {
	dstSize, err := btf.Sizeof(dst.Type)
	if err != nil {
		return err
	}
	srcSize, err := btf.Sizeof(src.Type)
	if err != nil {
		return err
	}
	for i := range min(dst.Nelems, src.Nelems) {
		if err := c.add(dst.Type, src.Type, to+i*uint32(dstSize), from+i*uint32(srcSize)); err != nil {
			return err
		}
	}
	return nil
}

// append joins what lies side by side on both sides.
func (c *converter) append(m move) {
	if n := len(c.ops); n > 0 && m.dstSize == m.srcSize {
		last := &c.ops[n-1]
		if last.dstSize == last.srcSize && last.dst+last.dstSize == m.dst && last.src+last.srcSize == m.src {
			last.dstSize += m.dstSize
			last.srcSize += m.srcSize
			return
		}
	}
	c.ops = append(c.ops, m)
}

func number(t btf.Type) (size uint32, signed, ok bool) {
	switch t := t.(type) {
	case *btf.Int:
		return t.Size, t.Encoding == btf.Signed, true
	case *btf.Enum:
		return t.Size, t.Signed, true
	}
	return 0, false, false
}

// sameLayout says that rows are the same bytes, of the same names.
func sameLayout(a, b btf.Type) bool {
	a, b = btf.UnderlyingType(a), btf.UnderlyingType(b)
	switch a := a.(type) {
	case *btf.Struct:
		b, ok := b.(*btf.Struct)
		if !ok || a.Size != b.Size || len(a.Members) != len(b.Members) {
			return false
		}
		for i, m := range a.Members {
			n := b.Members[i]
			if m.Name != n.Name || m.Offset != n.Offset || m.BitfieldSize != n.BitfieldSize || !sameLayout(m.Type, n.Type) {
				return false
			}
		}
		return true
	case *btf.Array:
		b, ok := b.(*btf.Array)
		return ok && a.Nelems == b.Nelems && sameLayout(a.Type, b.Type)
	}
	size, signed, ok := number(a)
	size2, signed2, ok2 := number(b)
	return ok && ok2 && size == size2 && signed == signed2
}

// SPDX-License-Identifier: Apache-2.0

package address

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// BadValue is a known key with a value that cannot be.
type BadValue struct{ Key, Value, Why string }

func (e BadValue) Error() string { return fmt.Sprintf("%s: %s: %s", e.Key, e.Value, e.Why) }

// fields are the values of a JSON object, by their keys in lower case: runtimes spell keys as
// their Go fields. Each is decoded alone, so that an error names the one that is wrong.
type fields struct {
	path   string // with a dot at its end, or ""
	values map[string]json.RawMessage
}

func decodeFields(path string, raw json.RawMessage) (fields, error) {
	f := fields{path: path, values: map[string]json.RawMessage{}}
	if path != "" {
		f.path += "."
	}
	if isNull(raw) {
		return f, nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return f, BadValue{path, shown(raw), "not an object"}
	}
	for key, value := range values {
		folded := strings.ToLower(key)
		if _, twice := f.values[folded]; !twice || key != folded {
			f.values[folded] = value // of two spellings always the same
		}
	}
	return f, nil
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

func (f fields) raw(key string) json.RawMessage { return f.values[strings.ToLower(key)] }

func (f fields) has(key string) bool { return !isNull(f.raw(key)) }

func (f fields) bad(key, why string) error { return BadValue{f.path + key, shown(f.raw(key)), why} }

// object decodes a value that is an object itself; an absent one is empty.
func (f fields) object(key string) (fields, error) { return decodeFields(f.path+key, f.raw(key)) }

// list gives the elements of a value, none if it is absent.
func (f fields) list(key string) (elements []json.RawMessage, err error) {
	if f.has(key) && json.Unmarshal(f.raw(key), &elements) != nil {
		return nil, f.bad(key, "not a list")
	}
	return elements, nil
}

// text decodes a string; an absent one is empty.
func (f fields) text(key string) (s string, err error) {
	if f.has(key) && json.Unmarshal(f.raw(key), &s) != nil {
		return "", f.bad(key, "not a string")
	}
	return s, nil
}

// addr decodes an address; an absent or empty one is the zero Addr.
func (f fields) addr(key string) (netip.Addr, error) {
	s, err := f.text(key)
	if err != nil || s == "" {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, f.bad(key, "not an IP address")
	}
	return a.Unmap(), nil
}

// shown gives a value as it was written, not too much of it.
func shown(raw json.RawMessage) string {
	const most = 100
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		out.Reset()
		out.Write(raw)
	}
	if out.Len() == 0 {
		return "(none)"
	}
	if out.Len() > most {
		out.Truncate(most)
		out.WriteString("...")
	}
	return out.String()
}

// SPDX-License-Identifier: Apache-2.0

// Package netconf decodes what a plugin is called with, so that an error names the one key, or
// CNI variable, and the value that is wrong.
package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// BadValue is a known key with a value that cannot be.
type BadValue struct{ Key, Value, Why string }

func (e BadValue) Error() string { return fmt.Sprintf("%s: %s: %s", e.Key, e.Value, e.Why) }

// Bad makes a BadValue.
func Bad(key, value, why string) error { return BadValue{key, value, why} }

// Object is a JSON object whose values are decoded one by one, so that an error names
// the one key and value that is wrong. Keys are compared without regard to case.
type Object struct {
	path   string // of the object, with a dot at its end, or ""
	values map[string]json.RawMessage
}

// Decode decodes the object that is the value of path; "" is the whole configuration. One
// that is null is empty.
func Decode(path string, raw json.RawMessage) (Object, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return Object{}, BadValue{path, Show(raw), "not an object"}
	}
	o := Object{values: make(map[string]json.RawMessage, len(values))}
	if path != "" {
		o.path = path + "."
	}
	for key, value := range values {
		folded := strings.ToLower(key)
		if _, twice := o.values[folded]; twice && key == folded {
			continue // of two spellings, take any but always the same
		}
		o.values[folded] = value
	}
	return o, nil
}

// Raw gives a value, nil if it is absent or null.
func (o Object) Raw(key string) json.RawMessage {
	v := o.values[strings.ToLower(key)]
	if bytes.Equal(bytes.TrimSpace(v), []byte("null")) {
		return nil
	}
	return v
}

// Name is how an error names a key.
func (o Object) Name(key string) string { return o.path + key }

// Has says whether a value is there.
func (o Object) Has(key string) bool { return o.Raw(key) != nil }

// Keys lists the keys whose values are there, in small letters and in order.
func (o Object) Keys() []string {
	var keys []string
	for key := range o.values {
		if o.Has(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Get decodes a value into to, which stays as it is if the value is absent.
func (o Object) Get(key string, to any) error {
	raw := o.Raw(key)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return o.Bad(key, explainJSON(err))
	}
	return nil
}

// Object decodes a value that is an object itself; an absent one is empty.
func (o Object) Object(key string) (Object, error) {
	raw := o.Raw(key)
	if raw == nil {
		return Object{path: o.path + key + "."}, nil
	}
	return Decode(o.path+key, raw)
}

// List decodes a value that is a list; each element is named by its place.
func (o Object) List(key string, each func(path string, raw json.RawMessage) error) error {
	var elements []json.RawMessage
	if err := o.Get(key, &elements); err != nil {
		return o.Bad(key, "not a list")
	}
	for i, raw := range elements {
		if err := each(fmt.Sprintf("%s%s[%d]", o.path, key, i), raw); err != nil {
			return err
		}
	}
	return nil
}

// Bad makes the error for a value that could be decoded but cannot be.
func (o Object) Bad(key, why string) error { return BadValue{o.path + key, Show(o.Raw(key)), why} }

// explainJSON says what is wrong in words of the configuration, not of Go.
func explainJSON(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	if strings.HasPrefix(wrong.Value, "number") {
		return "not in the range of " + wrong.Type.String()
	}
	return fmt.Sprintf("a %s where %s is expected", wrong.Value, wrong.Type)
}

// Show gives a value as it was written, not too much of it.
func Show(raw json.RawMessage) string {
	const most = 100
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		out.Write(raw)
	}
	if out.Len() > most {
		out.Truncate(most)
		out.WriteString("...")
	}
	return out.String()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// object is a JSON object whose values are decoded one by one, so that an error names
// the one key and value that is wrong. Keys are compared without regard to case.
type object struct {
	path   string // of the object, with a dot at its end, or ""
	values map[string]json.RawMessage
}

func decodeObject(path string, raw json.RawMessage) (object, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return object{}, badValue(path, show(raw), "not an object")
	}
	o := object{values: make(map[string]json.RawMessage, len(values))}
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

// raw gives a value, nil if it is absent or null.
func (o object) raw(key string) json.RawMessage {
	v := o.values[strings.ToLower(key)]
	if bytes.Equal(bytes.TrimSpace(v), []byte("null")) {
		return nil
	}
	return v
}

func (o object) has(key string) bool { return o.raw(key) != nil }

// get decodes a value into to, which stays as it is if the value is absent.
func (o object) get(key string, to any) error {
	raw := o.raw(key)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return o.bad(key, explainJSON(err))
	}
	return nil
}

// object decodes a value that is an object itself; an absent one is empty.
func (o object) object(key string) (object, error) {
	raw := o.raw(key)
	if raw == nil {
		return object{path: o.path + key + "."}, nil
	}
	return decodeObject(o.path+key, raw)
}

// list decodes a value that is a list; each element is named by its place.
func (o object) list(key string, each func(path string, raw json.RawMessage) error) error {
	var elements []json.RawMessage
	if err := o.get(key, &elements); err != nil {
		return o.bad(key, "not a list")
	}
	for i, raw := range elements {
		if err := each(fmt.Sprintf("%s%s[%d]", o.path, key, i), raw); err != nil {
			return err
		}
	}
	return nil
}

// bad makes the error for a value that could be decoded but cannot be.
func (o object) bad(key, why string) error { return badValue(o.path+key, show(o.raw(key)), why) }

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

// show gives a value as it was written, not too much of it.
func show(raw json.RawMessage) string {
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

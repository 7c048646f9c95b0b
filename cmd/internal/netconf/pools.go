// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// PoolsAnnotation is the annotation of a pod, or of a namespace, that names the pools which
// addresses are to come from. The pod's beats the namespace's.
const PoolsAnnotation = "culvert.dev/ippools"

// PoolNames reads the annotation's value: a JSON list of names, or names with commas between
// them. An empty one names none, and a name counts once.
func PoolNames(value string) ([]string, error) {
	value = strings.TrimSpace(value)
	names := strings.Split(value, ",")
	if strings.HasPrefix(value, "[") {
		names = nil
		if json.Unmarshal([]byte(value), &names) != nil {
			return nil, errors.New(`not a list of pools, as ["a", "b"] or a,b`)
		}
	}
	var out []string
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

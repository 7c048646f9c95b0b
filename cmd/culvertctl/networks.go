// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/culvert-cni/culvert/loader"
)

// readNetworks reads which uplinks the networks of a pinPath name, by the networks' names.
// A file that cannot be read is passed over: it is the runtime that complains of it.
func readNetworks(dir, pinPath string) map[string][]string {
	networks := map[string][]string{}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		switch filepath.Ext(file) {
		case ".conf", ".conflist", ".json":
		default:
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var list struct {
			Name    string
			Plugins []json.RawMessage
		}
		if json.Unmarshal(raw, &list) != nil {
			continue
		}
		if list.Plugins == nil {
			list.Plugins = []json.RawMessage{raw}
		}
		for _, p := range list.Plugins {
			if names, ok := uplinksOf(p, pinPath); ok {
				networks[list.Name] = names
			}
		}
	}
	return networks
}

// uplinksOf reads the key of one plugin, if that is culvert with this pinPath.
func uplinksOf(raw json.RawMessage, pinPath string) ([]string, bool) {
	var p struct {
		Type, PinPath string
		Uplinks       []string
	}
	if json.Unmarshal(raw, &p) != nil || filepath.Base(p.Type) != "culvert" {
		return nil, false
	}
	return p.Uplinks, strings.TrimSuffix(cmp.Or(p.PinPath, loader.DefaultPinPath), "/") == strings.TrimSuffix(pinPath, "/")
}

// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// Features are the bits of enum feature: what the loaded programs can rely on.
type Features uint32

const (
	FeatureConntrack = Features(bpf.DatapathFeatureFEATURE_CONNTRACK)
	FeatureTCX       = Features(bpf.DatapathFeatureFEATURE_TCX)
)

// NodeConfig is the one row of config. All zero: nothing was loaded to the end yet.
type NodeConfig struct {
	Build    uint64 // hash of the object that the programs came from
	Schema   uint32
	Features Features
}

// Config is the table config.
type Config struct {
	rows table[uint32, bpf.DatapathNodeConfig]
}

// Get reads the row.
func (t *Config) Get() (NodeConfig, error) {
	var key uint32
	value, err := t.rows.get(&key)
	if err != nil {
		return NodeConfig{}, fmt.Errorf("read config: %w", err)
	}
	return NodeConfig{value.Build, value.Schema, Features(value.Features)}, nil
}

// Put writes the row whole.
func (t *Config) Put(c NodeConfig) error {
	var key uint32
	value := bpf.DatapathNodeConfig{Build: c.Build, Schema: c.Schema, Features: bpf.DatapathFeature(c.Features)}
	if err := t.rows.put(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/bpf"
)

// Features are the bits of enum feature: what the loaded programs can rely on.
type Features uint32

const (
	FeatureConntrack = Features(bpf.DatapathFeatureFEATURE_CONNTRACK)
	FeatureTCX       = Features(bpf.DatapathFeatureFEATURE_TCX)
	// FeatureSharedPorts says that Ports holds numbers that the host's own sockets take
	// too, since hardly any others are left.
	FeatureSharedPorts = Features(bpf.DatapathFeatureFEATURE_SHARED_PORTS)
	// FeatureFqCodel says that limits are held with a queue a flow.
	FeatureFqCodel = Features(bpf.DatapathFeatureFEATURE_FQ_CODEL)
	// FeatureTBF says that limits can be held at all.
	FeatureTBF = Features(bpf.DatapathFeatureFEATURE_TBF)
)

const (
	// MaxPortRanges is how many ranges of source ports the row holds.
	MaxPortRanges = len(bpf.DatapathNodeConfig{}.Ports)
	// MaxUplinkAddrs is how many uplinks it holds the addresses of.
	MaxUplinkAddrs = len(bpf.DatapathNodeConfig{}.Uplinks)
)

// PortRange is the ports from First to Last, both in it.
type PortRange struct{ First, Last uint16 }

// Count is how many ports the range holds; 0 if its ends are the wrong way round.
func (r PortRange) Count() int { return max(0, int(r.Last)-int(r.First)+1) }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// UplinkAddr is what packets that are masqueraded leave a device with. A tunnel's may have several,
// of which the first is used, and what has another's for its source leaves as it is.
type UplinkAddr struct {
	Ifindex      int
	Addr4, Addr6 netip.Addr // zero: the device has none of the family
}

// NodeConfig is the one row of config. All zero: nothing was loaded to the end yet.
type NodeConfig struct {
	Build    uint64 // hash of the object that the programs came from
	Schema   uint32
	Features Features
	Ports    []PortRange  // source ports of masqueraded flows; in order, none twice
	Uplinks  []UplinkAddr // the tunnel's, then uplinks' for kernels whose FIB does not tell them
	// NetnsCookie is that of the node's network namespace, 0 before a hostPort was open on
	// loopback.
	NetnsCookie uint64
}

// PortCount is how many source ports there are to choose from.
func (c NodeConfig) PortCount() int {
	n := 0
	for _, r := range c.Ports {
		n += r.Count()
	}
	return n
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
	return decodeConfig(&value), nil
}

func decodeConfig(value *bpf.DatapathNodeConfig) NodeConfig {
	c := NodeConfig{Build: value.Build, Schema: value.Schema, Features: Features(value.Features), NetnsCookie: value.NetnsCookie}
	for _, r := range value.Ports {
		if r.First != 0 {
			c.Ports = append(c.Ports, PortRange{r.First, r.Last})
		}
	}
	for _, u := range value.Uplinks {
		if u.Ifindex != 0 {
			c.Uplinks = append(c.Uplinks, UplinkAddr{int(u.Ifindex), fromAddr(u.Addr4), fromAddr(u.Addr6)})
		}
	}
	return c
}

// Put writes the row whole: who changes a part of it holds the pinPath's lock from Get on.
func (t *Config) Put(c NodeConfig) error {
	var key uint32
	value, err := encodeConfig(c)
	if err == nil {
		err = t.rows.put(&key, &value, ebpf.UpdateAny)
	}
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

func encodeConfig(c NodeConfig) (bpf.DatapathNodeConfig, error) {
	value := bpf.DatapathNodeConfig{
		Build: c.Build, Schema: c.Schema, Features: bpf.DatapathFeature(c.Features), PortCount: uint32(c.PortCount()),
		NetnsCookie: c.NetnsCookie,
	}
	if len(c.Ports) > MaxPortRanges || len(c.Uplinks) > MaxUplinkAddrs {
		return value, fmt.Errorf("%d port ranges and %d uplinks, at most %d and %d fit",
			len(c.Ports), len(c.Uplinks), MaxPortRanges, MaxUplinkAddrs)
	}
	for i, r := range c.Ports {
		if r.First == 0 || r.Last < r.First {
			return value, fmt.Errorf("ports %s are no range", r)
		}
		value.Ports[i] = bpf.DatapathPortRange{First: r.First, Last: r.Last}
	}
	for i, u := range c.Uplinks {
		if u.Ifindex <= 0 {
			return value, errors.New("an uplink without ifindex")
		}
		value.Uplinks[i] = bpf.DatapathUplink{Ifindex: uint32(u.Ifindex), Addr4: toAddr(u.Addr4), Addr6: toAddr(u.Addr6)}
	}
	return value, nil
}

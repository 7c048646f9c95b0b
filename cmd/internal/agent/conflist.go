// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/culvert-cni/culvert/cmd/internal/file"
)

const (
	// NetworkName is what attachments of this node's pods are known by.
	NetworkName = "culvert"
	// ConflistName is the file's. Runtimes take the first one of the directory.
	ConflistName = "10-culvert.conflist"

	// writtenBy marks the file as ours to rewrite.
	writtenBy = "culvertd: changes of this file are lost"
)

// conflist is a list of one plugin, as CNI and docs/cni.md have it.
type conflist struct {
	CNIVersion string       `json:"cniVersion"`
	Name       string       `json:"name"`
	WrittenBy  string       `json:"writtenBy"` // no key of CNI's
	Plugins    []pluginConf `json:"plugins"`
}

type pluginConf struct {
	Type          string          `json:"type"`
	Capabilities  map[string]bool `json:"capabilities"`
	IPMasq        bool            `json:"ipMasq"`
	NonMasquerade []netip.Prefix  `json:"nonMasqueradeCIDRs"`
	MTU           int             `json:"mtu,omitempty"`
	PinPath       string          `json:"pinPath,omitempty"`
	IPAM          ipamConf        `json:"ipam"`
	CNIVersion    string          `json:"cniVersion,omitempty"` // of what a plugin gets, not of the list
	Name          string          `json:"name,omitempty"`
}

type ipamConf struct {
	Type           string              `json:"type"`
	Ranges         [][]ipRange         `json:"ranges"`
	Routes         []route             `json:"routes,omitempty"`
	Reserved       []netip.Prefix      `json:"reserved,omitempty"`
	Pools          map[string]ipamPool `json:"pools,omitempty"`
	NamespacePools map[string][]string `json:"namespacePools,omitempty"`
}

type (
	ipRange struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	route struct {
		Dst netip.Prefix `json:"dst"`
	}
	ipamPool struct {
		Ranges [][]ipRange `json:"ranges"`
	}
)

// makeConflist is the configuration of a plan: nothing of it is kept elsewhere.
func makeConflist(c Config, plan Plan) conflist {
	ipam := ipamConf{
		Type: "culvert-ipam", Ranges: sets(plan.state.Ranges), Reserved: plan.state.Reserved,
		NamespacePools: plan.state.Namespaces, Pools: map[string]ipamPool{},
	}
	for name, pool := range plan.state.Pools {
		ipam.Pools[name] = ipamPool{sets(pool)}
	}
	for _, family := range families(plan.own) {
		ipam.Routes = append(ipam.Routes, route{netip.PrefixFrom(family, 0)})
	}
	nonMasq := append(slices.Clone(c.ClusterCIDR), plan.own...)
	slices.SortFunc(nonMasq, netip.Prefix.Compare)
	plugin := pluginConf{
		Type: "culvert", IPMasq: c.Masquerade, MTU: plan.MTU, PinPath: c.PinPath, IPAM: ipam,
		NonMasquerade: slices.Compact(nonMasq),
		Capabilities:  map[string]bool{"portMappings": true, "bandwidth": true, "io.kubernetes.cri.pod-annotations": true},
	}
	return conflist{CNIVersion: c.CNIVersion, Name: NetworkName, WrittenBy: writtenBy, Plugins: []pluginConf{plugin}}
}

// sets makes a set of each family: a pod gets one address of each.
func sets(ranges []netip.Prefix) [][]ipRange {
	out := [][]ipRange{}
	for _, family := range families(ranges) {
		var set []ipRange
		for _, r := range ranges {
			if r.Addr().BitLen() == family.BitLen() {
				set = append(set, ipRange{r})
			}
		}
		out = append(out, set)
	}
	return out
}

// families gives the unspecified address of each family that there is, IPv4 first.
func families(ranges []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().BitLen() == family.BitLen() }) {
			out = append(out, family)
		}
	}
	return out
}

var (
	errNoRange = errors.New("this node has no range of addresses: give the Node a podCIDR, or make an IPPool that has room for it")
	errForeign = errors.New("a file that culvertd has not written")
)

// writeConflist writes the configuration if it differs from what is there. Without a range none
// is made; one that is there is rewritten all the same, so that no more pods get addresses that
// are another node's by now.
func (a *Agent) writeConflist(r *round, plan Plan) {
	list := makeConflist(a.Config, plan)
	if a.ConfDir == "" { // somebody else writes it
		a.conf = list.plugin()
		return
	}
	path := filepath.Join(a.ConfDir, ConflistName)
	now, err := os.ReadFile(path)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fault(stepConflist, err)
		return
	}
	if there && !ours(now) {
		r.fault(stepConflist, fmt.Errorf("%s is %w: move it away, or tell culvertd another --cni-conf-dir", path, errForeign))
		return
	}
	if len(plan.state.Ranges) == 0 {
		r.fault(stepRanges, errNoRange)
		if !there {
			return
		}
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err == nil && !bytes.Equal(now, append(text, '\n')) {
		file.Sweep(path)
		err = file.Replace(path, append(text, '\n'), 0o600)
		if err == nil {
			a.Log.Info("wrote the configuration", "path", path, "ranges", plan.state.Ranges, "mtu", plan.MTU)
		}
	}
	if r.fault(stepConflist, err) {
		return
	}
	a.conf = list.plugin()
	r.fault(stepConflist, a.shadowed())
}

// plugin is what the runtime's library makes of the list for a call of the plugin.
func (c conflist) plugin() []byte {
	p := c.Plugins[0]
	p.CNIVersion, p.Name = c.CNIVersion, c.Name
	conf, err := json.Marshal(p)
	if err != nil {
		return nil // it was decoded, or made, a moment ago
	}
	return conf
}

// ours says whether a file was written by culvertd.
func ours(text []byte) bool {
	var list conflist
	return json.Unmarshal(text, &list) == nil && list.WrittenBy == writtenBy && len(list.Plugins) == 1
}

// Forget removes a configuration that culvertd wrote, as after a boot: while the machine was away
// its ranges may have become another node's. removed is false where there is none of ours.
func Forget(dir string) (removed bool, err error) {
	path := filepath.Join(dir, ConflistName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ours(text) {
		return false, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	return err == nil, err
}

// readConf gives the plugin's configuration as an earlier run left it, nil if there is none.
func (a *Agent) readConf() []byte {
	var list conflist
	if a.ConfDir == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(a.ConfDir, ConflistName))
	if err != nil || !ours(text) || json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list.plugin()
}

// shadowed tells of a file that the runtime takes in the place of ours.
func (a *Agent) shadowed() error {
	files, err := os.ReadDir(a.ConfDir) // in order
	if err != nil {
		return err
	}
	for _, f := range files {
		switch filepath.Ext(f.Name()) {
		case ".conf", ".conflist", ".json":
			if f.Name() == ConflistName {
				return nil
			}
			return fmt.Errorf("the runtime takes %s, which comes before %s: remove it, as its plugin is to go", filepath.Join(a.ConfDir, f.Name()), ConflistName)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// Pools are ranges that pods get addresses from in the place of the network's own, if they or
// their namespaces name them. Which of them have ranges on a node, and which namespaces name
// which, an agent writes into the configuration: an ADD asks nobody.

// annotationsKey is how containerd hands on the annotations of a pod.
const annotationsKey = "io.kubernetes.cri.pod-annotations"

// parsePools reads pools and namespacePools. A pool without ranges is one of which this node
// has none.
func (all *ranges) parsePools(ipam netconf.Object) error {
	pools, err := ipam.Object("pools")
	if err != nil {
		return err
	}
	for _, name := range pools.Keys() {
		section, err := pools.Object(name)
		if err != nil {
			return err
		}
		sets, err := decodeSets(section, "ranges")
		if err != nil {
			return err
		}
		all.pools = append(all.pools, poolRanges{name, sets})
	}
	namespaces, err := ipam.Object("namespacePools")
	if err != nil {
		return err
	}
	all.namespaces = map[string][]string{}
	for _, name := range namespaces.Keys() {
		if all.namespaces[name], err = poolList(namespaces, name); err != nil {
			return err
		}
	}
	return nil
}

func poolList(o netconf.Object, key string) (names []string, err error) {
	err = o.List(key, func(path string, raw json.RawMessage) error {
		var name string
		if json.Unmarshal(raw, &name) != nil || name == "" {
			return netconf.Bad(path, netconf.Show(raw), "not the name of a pool")
		}
		names = append(names, name)
		return nil
	})
	return names, err
}

// wanted are the pools that a pod names by its annotation, else those that its namespace does.
func (all *ranges) wanted(top netconf.Object, cniArgs string) ([]string, error) {
	runtime, err := top.Object("runtimeConfig")
	if err != nil {
		return nil, err
	}
	annotations, err := runtime.Object(annotationsKey)
	if err != nil {
		return nil, err
	}
	text, err := textOf(annotations, netconf.PoolsAnnotation)
	if err != nil {
		return nil, err
	}
	names, err := netconf.PoolNames(text)
	if err != nil {
		return nil, bad(annotations, netconf.PoolsAnnotation, err.Error())
	}
	if len(names) == 0 {
		names = all.namespaces[strings.ToLower(argument(cniArgs, "K8S_POD_NAMESPACE"))]
	}
	return names, nil
}

// choose gives the sets of the pools that are named, one for each family; the network's own
// ranges if none is.
func (all *ranges) choose(names []string) ([]Set, error) {
	if len(names) == 0 {
		if len(all.sets) == 0 {
			return nil, fmt.Errorf("%w for pods that name no pool", ErrNoRange)
		}
		return all.sets, nil
	}
	var chosen []Set
	for i, name := range names {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		if slices.ContainsFunc(names[:i], same) {
			continue
		}
		at := slices.IndexFunc(all.pools, func(p poolRanges) bool { return same(p.name) })
		if at < 0 || len(all.pools[at].sets) == 0 {
			return nil, fmt.Errorf("%w for pool %q", ErrNoRange, name)
		}
		for _, set := range all.pools[at].sets {
			chosen = addTo(chosen, set)
		}
	}
	if err := checkSets(chosen); err != nil {
		return nil, netconf.Bad("ipam.pools", strings.Join(names, ", "), err.Error())
	}
	seal(chosen, all.never)
	return chosen, nil
}

// addTo adds the ranges of a set to the one of its family.
func addTo(sets []Set, more Set) []Set {
	at := slices.IndexFunc(sets, func(s Set) bool { return s.First().BitLen() == more.First().BitLen() })
	if at < 0 {
		return append(sets, Set{Ranges: slices.Clone(more.Ranges)})
	}
	sets[at].Ranges = append(sets[at].Ranges, more.Ranges...)
	return sets
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/maps"
)

// findPod finds the attachment that a user means: by an address, by the container's id
// or its beginning, or by that and the interface's name with a slash between them. An id
// that is whole is never the beginning of another one.
func findPod(set *maps.Set, name string) (maps.Iface, error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		return findAddress(set, addr.Unmap())
	}
	ifaces, err := maps.Collect(set.Ifaces.All())
	if err != nil {
		return maps.Iface{}, err
	}
	return findNamed(ifaces, name)
}

func findNamed(ifaces []maps.Iface, name string) (maps.Iface, error) {
	id, ifName, one := strings.Cut(name, "/")
	var whole, begun []maps.Iface
	for _, i := range ifaces {
		switch {
		case id == "" || one && i.IfName != ifName:
		case i.Container == id:
			whole = append(whole, i)
		case strings.HasPrefix(i.Container, id):
			begun = append(begun, i)
		}
	}
	if len(whole) == 0 {
		whole = begun
	}
	return theOne(name, metrics.Youngest(whole))
}

func findAddress(set *maps.Set, addr netip.Addr) (maps.Iface, error) {
	pod, err := set.Pods.Get(addr)
	if err != nil && !errors.Is(err, maps.ErrNotFound) {
		return maps.Iface{}, err
	}
	owners, err := readOwners(set)
	if err != nil {
		return maps.Iface{}, err
	}
	i := owners.of(pod.Ifindex, pod.Generation)
	if i.Generation == 0 {
		return i, fmt.Errorf("no pod has the address %s: see culvertctl pods", addr)
	}
	return i, nil
}

func theOne(name string, found []maps.Iface) (maps.Iface, error) {
	switch len(found) {
	case 0:
		return maps.Iface{}, fmt.Errorf("no pod is called %q: see culvertctl pods", name)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, i := range found {
		names = append(names, i.Container+"/"+i.IfName)
	}
	slices.Sort(names)
	return maps.Iface{}, fmt.Errorf("%q may be any of %s", name, strings.Join(names, ", "))
}

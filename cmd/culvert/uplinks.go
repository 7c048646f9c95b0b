// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
)

// uplinks finds the node's uplinks, those of the key uplinks or by the rule.
func (s *session) uplinks() (netdev.Uplinks, error) {
	u, err := s.node.Uplinks(s.conf.uplinks, podnet.IsHostName)
	if err != nil {
		return u, err
	}
	for _, l := range u.LeftOut {
		s.log.Info("device is no uplink: it has no Ethernet header", "device", l.Name, "kind", l.Kind)
	}
	return u, nil
}

// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"slices"

	"github.com/culvert-cni/culvert/bpf"
)

// remoteTables are those that Open does without, as builds that knew no other node had none.
var remoteTables = []string{bpf.DatapathMapRemotes}

// AttachTunnel attaches from_tunnel and to_tunnel to the device that other nodes' pods are
// reached by; do it before the device is up. Once they are there, every further call costs a
// few system calls. They are replaced as all programs are, and stay when the caller ends.
func (d *Datapath) AttachTunnel(ifindex int) error { return d.attachShared(tunnelHooks(), ifindex) }

// CheckTunnel is CheckPod for a tunnel device.
func (d *Datapath) CheckTunnel(ifindex int) error { return d.check(tunnelHooks(), ifindex) }

// DetachTunnel takes the programs off a device. It is idempotent, and no error that the
// device is gone.
func (d *Datapath) DetachTunnel(ifindex int) error { return d.detachShared(tunnelHooks(), ifindex) }

// Carriers lists the devices that carry our programs for uplinks and for tunnels, each in order.
func (d *Datapath) Carriers() (uplinks, tunnels []int, err error) {
	list, err := attachments(d.dirs)
	if err != nil {
		return nil, nil, err
	}
	on := map[string][]int{}
	for _, a := range list {
		if kind := a.hook.device; (kind == "uplink" || kind == "tunnel") && !a.hook.egress && !a.stale() {
			on[kind] = append(on[kind], a.ifindex)
		}
	}
	for _, ifindexes := range on {
		slices.Sort(ifindexes)
	}
	return slices.Compact(on["uplink"]), slices.Compact(on["tunnel"]), nil
}

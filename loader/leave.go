// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
)

// LeavePod takes from_pod and to_pod off a veth that stays when the attachment goes, as it
// is another plugin's. It is idempotent, and no error that the device is gone. The qdisc
// of the filters stays.
func (d *Datapath) LeavePod(ifindex int) error {
	var errs []error
	for _, h := range podHooks() {
		if err := d.detachTCX(h, ifindex); err != nil {
			errs = append(errs, err)
		}
		if err := d.opts.Netlink.DetachClsact(ifindex, h.egress); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("detach %s from iface %d: %w", h.program, ifindex, err))
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"

	"github.com/culvert-cni/culvert/maps"
)

// Teardown takes an attachment off, whatever of it there is: it is no error that there
// is nothing. The addresses are freed last, so that who gets them next finds no row of
// ours; they are freed too when something before went wrong.
func Teardown(ctx context.Context, d *Deps, o maps.Owner) error {
	ranges, rangesErr := d.leaving(o)
	found, err := d.clean(o)
	if err = errors.Join(err, rangesErr); err != nil {
		d.Log.Error("teardown is not complete", "error", err)
	} else if !found {
		d.Log.Info("nothing to tear down")
	}
	if d.Datapath != nil {
		err = errors.Join(err, d.releaseNetworks(o.Network), d.left(o, ranges))
	}
	if d.IPAM == nil {
		return err
	}
	return errors.Join(err, d.IPAM.Del(ctx))
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// limits checks that what the rows say is what the shapers do.
func (c *check) limits() error {
	for _, l := range []struct {
		want  Rate
		dir   maps.Direction
		dev   *netdev.Handle
		index func() (int, error)
	}{
		{c.Ingress, maps.Ingress, c.Node, func() (int, error) { return c.row.Ifindex, nil }},
		{c.Egress, maps.Egress, c.pod, c.podIndex},
	} {
		row, err := c.Datapath.Maps.Limits.Get(c.row.Ifindex, l.dir)
		if errors.Is(err, maps.ErrNotFound) && l.want.Rate == 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("check limits: %w", err)
		}
		index, err := l.index()
		if err != nil {
			return err
		}
		now, err := l.dev.ReadShaper(index)
		if err != nil {
			return err
		}
		if err := sameLimit(row, now); err != nil {
			return err
		}
	}
	return nil
}

// sameLimit compares a row with the shaper that stands, not with the configuration:
// `culvertctl limits set` may have changed both, or lifted the limit.
func sameLimit(row maps.Limit, now netdev.ShaperState) error {
	switch {
	case row.Rate == 0 && !now.Ours:
		return nil // whatever the pod put there
	case now.Rate != row.Rate/8:
		return fmt.Errorf("check limits: %s shaper is at %d bit/s, its row at %d", row.Direction, now.Rate*8, row.Rate)
	case row.Rate > 0 && kindOf(now.Flows) != row.Shaper:
		return fmt.Errorf("check limits: %s shaper is %s, in its row %s", row.Direction, kindOf(now.Flows), row.Shaper)
	}
	return nil
}

func (c *check) podIndex() (int, error) {
	link, err := c.pod.LinkNamed(c.IfName)
	return link.Index, err
}

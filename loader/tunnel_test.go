// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// A tunnel is attached to as an uplink is, and no change of uplinks takes it off.
func TestPrivilegedTunnelHooks(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		n.do(t, func() error {
			if n.d.CheckTunnel(n.dev) == nil {
				t.Error("attached before")
			}
			err := errors.Join(n.d.AttachTunnel(n.dev), n.d.AttachTunnel(n.dev), n.d.CheckTunnel(n.dev))
			if _, _, setErr := n.d.SetUplinks(func() ([]int, error) { return nil, nil }); setErr != nil {
				err = setErr
			}
			return err
		})
		if in, out := n.on(t, n.dev, false), n.on(t, n.dev, true); in != 1 || out != 1 {
			t.Errorf("%d and %d programs", in, out)
		}
		_, tunnels, err := n.d.Carriers()
		uplinks, uplinkErr := n.d.Uplinks()
		if err := errors.Join(err, uplinkErr); err != nil || !slices.Equal(tunnels, []int{n.dev}) || len(uplinks) != 0 {
			t.Errorf("tunnels %v, uplinks %v, %v", tunnels, uplinks, err)
		}
		n.do(t, func() error { return errors.Join(n.d.DetachTunnel(n.dev), n.d.DetachTunnel(n.dev)) })
		if in, out := n.on(t, n.dev, false), n.on(t, n.dev, true); in != 0 || out != 0 {
			t.Errorf("detached: %d and %d programs", in, out)
		}
	})
}

// What a build made that knew no other nodes is opened as it is, and completed by Ensure.
func TestPrivilegedRemotesAreNew(t *testing.T) {
	n := newNode(t, AttachAuto, false)
	pin := filepath.Join(n.d.dirs.maps, bpf.DatapathMapRemotes)
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	old, err := Open(n.d.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if rows, err := maps.Collect(old.Maps.Remotes.All()); err != nil || len(rows) != 0 {
		t.Errorf("rows %v, %v", rows, err)
	}
	if err := old.Maps.Remotes.Put(maps.Remote{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("written: %v", err)
	}
	if status := Inspect(n.d.opts); status.Current && openCurrent(n.d.opts) != nil {
		t.Error("nothing is to be done")
	}
	n.do(t, func() error { ensure(t, n.d.opts); return nil })
	if !exists(pin) {
		t.Error("not made by Ensure")
	}
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
)

// What the node's own connections to hostPorts need of the node, beside from_host on lo.
// It holds while there is a hostPort. Both sysctls are of lo alone and are for IPv4.
var (
	// Answers come back into lo with the node's own address as destination and a
	// source that is local too.
	acceptLocal = netdev.Sysctl{Path: "net/ipv4/conf/lo/accept_local", Value: "1"}
	// Callers on 127.0.0.1 are answered from an address that is not loopback.
	routeLocalnet = netdev.Sysctl{Path: "net/ipv4/conf/lo/route_localnet", Value: "1"}
)

// openHost is called after a row was claimed.
func (s *setup) openHost() error {
	return s.Datapath.AttachHost(s.Loopback, func() error {
		if err := s.raise(acceptLocal); err != nil {
			return err
		}
		if s.Loopback {
			if err := s.raise(routeLocalnet); err != nil {
				return err
			}
		}
		return s.denyUnrouted()
	})
}

// denyUnrouted gives a family without a default route one that says "unreachable":
// without any route the kernel's lookup calls a foreign address local, and the node
// would take the hostPort's number on the whole Internet for its own.
func (s *setup) denyUnrouted() error {
	if !s.Uplinks.Default4 && s.layout.has(false) {
		if err := s.Node.SetUnreachable(4); err != nil {
			return err
		}
	}
	if !s.Uplinks.Default6 && s.layout.has(true) {
		return s.Node.SetUnreachable(6)
	}
	return nil
}

// hostOpen says that there may be something for closeHost to take back.
func (d *Deps) hostOpen() bool {
	return d.raised(acceptLocal) || d.raised(routeLocalnet) || d.Datapath.SocketsAttached()
}

// closeHost is called after rows were deleted. It takes back what no row needs. While
// there are others it takes no lock: who deletes the last one comes here after that.
func (d *Deps) closeHost() error {
	any, err := d.Datapath.Maps.Hostports.Any()
	if err == nil && !any {
		err = d.Datapath.DetachHost(func() error {
			return errors.Join(d.lower(acceptLocal), d.Node.DeleteUnreachable(4), d.Node.DeleteUnreachable(6))
		})
	}
	if err != nil || !d.raised(routeLocalnet) && !d.Datapath.SocketsAttached() {
		return err
	}
	return d.closeLoopback()
}

// closeLoopback undoes what hostPorts on loopback need once none is open there.
func (d *Deps) closeLoopback() error {
	if open, err := d.loopbackOpen(); err != nil || open {
		return err
	}
	unlock, err := d.Datapath.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if open, err := d.loopbackOpen(); err != nil || open {
		return err
	}
	return errors.Join(d.Datapath.DetachSockets(), d.lower(routeLocalnet))
}

func (d *Deps) loopbackOpen() (bool, error) {
	for row, err := range d.Datapath.Maps.Hostports.All() {
		if err != nil || row.Loopback {
			return err == nil, err
		}
	}
	return false, nil
}

// raise sets a sysctl and leaves a mark, a directory beside the pins, that it was us: an
// administrator's 1 stays when we go. The mark comes first, so that a crash between the
// two leaves a mark too many, not a setting.
func (d *Deps) raise(s netdev.Sysctl) error {
	now, err := s.Get()
	if err != nil || now == s.Value {
		return err
	}
	if err := os.MkdirAll(d.mark(s), 0o700); err != nil {
		return fmt.Errorf("mark sysctl %s: %w", s.Path, err)
	}
	return s.Set()
}

// lower takes back what raise did, if it was raise that did it.
func (d *Deps) lower(s netdev.Sysctl) error {
	if !d.raised(s) {
		return nil
	}
	s.Value = "0"
	if err := s.Set(); err != nil {
		return err
	}
	if err := remove(d.mark(s)); err != nil {
		return fmt.Errorf("remove mark of sysctl %s: %w", s.Path, err)
	}
	return nil
}

// mark is the directory that remembers raise, named "lo_accept_local".
func (d *Deps) mark(s netdev.Sysctl) string {
	device, name := filepath.Split(s.Path)
	return filepath.Join(d.PinPath, fmt.Sprintf("v%d", loader.Schema), "sysctls", filepath.Base(device)+"_"+name)
}

func (d *Deps) raised(s netdev.Sysctl) bool {
	_, err := os.Lstat(d.mark(s))
	return err == nil
}

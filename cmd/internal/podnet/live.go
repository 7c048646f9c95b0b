// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

var (
	// ErrWentAway says that the attachment was deleted, or is being.
	ErrWentAway = errors.New("the pod went away")
	// ErrNotReachable says that the attachment cannot be got at, or is not complete.
	ErrNotReachable = errors.New("the pod cannot be changed")
)

// live is an attachment that is complete and whose both ends are open: what is to be
// changed while it is in use.
type live struct {
	*Deps
	row      maps.Iface
	kind     maps.Shaper // of a new shaper
	ns       *netdev.Namespace
	pod      *netdev.Handle
	podIndex int
}

// openLive opens both ends and makes sure that they are those of the row. The caller
// holds the lock, and asked by a row that it read before.
func openLive(d *Deps, i maps.Iface) (*live, error) {
	config, err := d.Datapath.Maps.Config.Get()
	if err != nil {
		return nil, err
	}
	p := &live{Deps: d, row: i, kind: shaperKind(config.Features)}
	if err := p.still(); err != nil {
		return nil, err
	}
	if len(p.row.Addrs) == 0 && !p.chained() { // chained, a pod may have none
		return nil, fmt.Errorf("%w: its ADD has not come to its end", ErrNotReachable)
	}
	if err := p.openNamespace(); err != nil {
		return nil, err
	}
	if err := p.ends(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *live) close() {
	if p.pod != nil {
		p.pod.Close()
	}
	p.ns.Close()
}

// still reads the row anew; it is ErrWentAway if it is not that of the attachment.
func (p *live) still() error {
	row, err := p.Datapath.Maps.Ifaces.Get(p.row.Ifindex)
	if errors.Is(err, maps.ErrNotFound) || err == nil && row.Generation != p.row.Generation {
		return ErrWentAway
	}
	if err == nil {
		p.row = row
	}
	return err
}

// stays makes sure that what was written goes with the attachment. DEL holds no lock; but
// it deletes the veth before the rows, so as long as that stands they are to be deleted.
func (p *live) stays() error {
	if err := p.still(); err != nil {
		return err
	}
	if !p.wired() {
		return ErrWentAway
	}
	return nil
}

// wired says whether the host side of the veth stands.
func (p *live) wired() bool {
	host, err := p.Node.Link(p.row.Ifindex)
	return err == nil && isDeviceOf(host, p.row)
}

// dropIfGone deletes limits that were written for an attachment that went meanwhile, and
// of which DEL may not have known.
func (p *live) dropIfGone() error {
	row, err := p.Datapath.Maps.Ifaces.Get(p.row.Ifindex)
	if err == nil && (row.Generation != p.row.Generation || p.wired()) {
		return nil // they are another's by now, or still to be deleted
	}
	if p.chained() {
		return p.dropChained()
	}
	if err != nil && !errors.Is(err, maps.ErrNotFound) {
		return err
	}
	m := p.Datapath.Maps.Limits
	return errors.Join(m.Delete(p.row.Ifindex, maps.Ingress), m.Delete(p.row.Ifindex, maps.Egress))
}

func (p *live) openNamespace() error {
	ns, err := netdev.OpenNamespace(p.row.NetnsPath)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, netdev.ErrNotNamespace):
		return fmt.Errorf("%w: its network namespace is not at %s any more", ErrNotReachable, p.row.NetnsPath)
	case err != nil:
		return err
	case ns.Inode != p.row.Netns:
		ns.Close()
		return fmt.Errorf("%w: at %s is another network namespace (inode %d) than the pod's (%d)",
			ErrNotReachable, p.row.NetnsPath, ns.Inode, p.row.Netns)
	}
	p.ns = ns
	return nil
}

// ends finds both ends of the veth. ADD gives them their limits before it sets them up.
func (p *live) ends() error {
	host, err := p.Node.Link(p.row.Ifindex)
	if errors.Is(err, unix.ENODEV) || err == nil && !isDeviceOf(host, p.row) {
		return fmt.Errorf("%w: its device %s is not in this network namespace, which has to be the node's", ErrNotReachable, p.row.HostIfName)
	}
	if err != nil {
		return err
	}
	if p.pod, err = netdev.OpenIn(p.ns); err != nil {
		return err
	}
	pod, err := p.pod.Link(host.PeerIndex)
	if errors.Is(err, unix.ENODEV) || err == nil && pod.PeerIndex != host.Index {
		return fmt.Errorf("%w: the other end of %s is not in its network namespace", ErrNotReachable, host.Name)
	}
	if err != nil {
		return err
	}
	if !host.Up || !pod.Up {
		return fmt.Errorf("%w: %s or, in the pod, %s is down", ErrNotReachable, host.Name, pod.Name)
	}
	p.podIndex = pod.Index
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/maps"
)

// Between the veth and its row an ADD leaves nothing that tells whose it is but the
// veth's name. GC may take such a pair for remains only while no ADD runs in the node's
// namespace, of whatever pinPath: every ADD shares a lock on that namespace's file, and
// GC asks for it alone, without waiting.

// makingWait bounds how long ADD waits for a GC that looks; then it goes on without the
// lock, as to be taken for remains it would still have to be that GC's turn.
const makingWait = time.Second

// shareMaking keeps GC from taking a pair in the making for remains.
func shareMaking() (unlock func()) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return func() {}
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(makingWait); time.Now().Before(end); <-again.C {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return func() { f.Close() }
}

// noMaking says whether no ADD is under way, and keeps new ones from beginning.
func noMaking() (unlock func(), ok bool) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return func() {}, false
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return func() { f.Close() }, err == nil
}

// strangers deletes the pairs that an ADD was killed over before it could write their
// row: down, without programs, and named after no attachment that is valid. It says
// whether there are others of ours that no row tells of: bpffs was lost.
func (d *Deps) strangers(network string, valid []Attachment) (left bool, err error) {
	links, err := d.Node.LinksNamed(IsHostName)
	if err != nil {
		return true, err
	}
	unlock, alone := noMaking()
	defer unlock()
	keep := map[string]bool{}
	for _, a := range valid {
		keep[HostName(maps.Owner{Network: network, Container: a.Container, IfName: a.IfName})] = true
	}
	var errs []error
	for _, l := range links {
		_, err := d.Datapath.Maps.Ifaces.Get(l.Index)
		if err == nil {
			continue
		}
		if !errors.Is(err, maps.ErrNotFound) || !alone || valid == nil || keep[l.Name] || !d.bare(l.Index) {
			left = true
			continue
		}
		d.Log.Info("collected a pair that was never used", "device", l.Name)
		errs = append(errs, d.Node.DeleteLink(l.Index))
	}
	return left, errors.Join(errs...)
}

// bare says that a device is as CreateVeth leaves it. It is looked up anew: the list is
// from before the lock.
func (d *Deps) bare(index int) bool {
	l, err := d.Node.Link(index)
	if err != nil || l.Kind != "veth" || l.Up {
		return false
	}
	has, err := d.Node.HasClsact(index, false)
	return err == nil && !has
}

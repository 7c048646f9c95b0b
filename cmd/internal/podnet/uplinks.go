// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
)

// Networks share the uplinks: a device carries our programs as long as a network wants it.
// What a network wants is kept beside the pins, by empty directories:
//
//	<pinPath>/v1/uplinks/<network>/<device>   a name of its key "uplinks", or
//	<pinPath>/v1/uplinks/<network>/:rule      it has no such key: by the rule
//
// A directory of a network without either says nothing: who wrote it was killed.
const byRule = ":rule" // no device can be called that

// uplinkWish is what one network wants.
type uplinkWish struct {
	network string
	entries []string // names, or byRule
}

func (d *Deps) uplinkDir() string {
	return filepath.Join(d.PinPath, fmt.Sprintf("v%d", loader.Schema), "uplinks")
}

func wishOf(network string, names []string) uplinkWish {
	if len(names) == 0 {
		return uplinkWish{network, []string{byRule}}
	}
	return uplinkWish{network, slices.Compact(slices.Sorted(slices.Values(names)))}
}

// bpffs refuses names with a dot.
var (
	toPin   = strings.NewReplacer("%", "%25", ".", "%2e")
	fromPin = strings.NewReplacer("%25", "%", "%2e", ".")
)

// readWish reads what a network wants; no entries if nothing is known.
func (d *Deps) readWish(network string) (uplinkWish, error) {
	w := uplinkWish{network: network}
	list, err := os.ReadDir(filepath.Join(d.uplinkDir(), toPin.Replace(network)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w, fmt.Errorf("read uplinks of network %s: %w", network, err)
	}
	for _, e := range list {
		w.entries = append(w.entries, fromPin.Replace(e.Name()))
	}
	slices.Sort(w.entries)
	return w, nil
}

func (d *Deps) readWishes() ([]uplinkWish, error) {
	list, err := os.ReadDir(d.uplinkDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read uplinks of networks: %w", err)
	}
	var wishes []uplinkWish
	for _, e := range list {
		w, err := d.readWish(fromPin.Replace(e.Name()))
		if err != nil {
			return nil, err
		}
		wishes = append(wishes, w)
	}
	return wishes, nil
}

// writeWish makes it what is kept; without entries nothing is. Call it under the lock.
func (d *Deps) writeWish(w uplinkWish) error {
	dir := filepath.Join(d.uplinkDir(), toPin.Replace(w.network))
	var errs []error
	for _, e := range w.entries {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, toPin.Replace(e)), 0o700))
	}
	now, err := d.readWish(w.network)
	errs = append(errs, err)
	for _, e := range now.entries {
		if !slices.Contains(w.entries, e) {
			errs = append(errs, remove(filepath.Join(dir, toPin.Replace(e))))
		}
	}
	if len(w.entries) == 0 {
		errs = append(errs, remove(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("keep uplinks of network %s: %w", w.network, err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// nameUplinks keeps what the network wants and, if that is not what it wanted before, takes
// the programs off devices that nobody wants any more. It comes after ownIface, as does
// listRanges.
func (s *setup) nameUplinks() error {
	want := wishOf(s.Network, s.Uplinks.Names)
	now, err := s.readWish(s.Network)
	if err != nil || slices.Equal(now.entries, want.entries) {
		return err
	}
	_, _, err = s.Datapath.SetUplinks(func() ([]int, error) {
		if err := s.writeWish(want); err != nil {
			return nil, err
		}
		return s.wantedUplinks()
	})
	return err
}

// wantedUplinks are the devices that any network wants, and those that carry programs where
// it is not known what all networks want.
func (d *Deps) wantedUplinks() ([]int, error) {
	wishes, err := d.readWishes()
	if err != nil {
		return nil, err
	}
	var links []netdev.Link
	for _, w := range wishes {
		for _, e := range w.entries {
			found, err := d.fulfil(e)
			if err != nil {
				return nil, err
			}
			links = append(links, found...)
		}
	}
	var indexes []int
	for _, l := range links {
		indexes = append(indexes, l.Index)
	}
	unknown, err := d.unknownWishes(wishes)
	if err == nil && len(unknown) > 0 {
		var on []int
		on, err = d.Datapath.Uplinks()
		indexes = append(indexes, on...)
	}
	slices.Sort(indexes)
	return slices.Compact(indexes), err
}

// fulfil finds the devices of one entry, as far as there are any.
func (d *Deps) fulfil(entry string) ([]netdev.Link, error) {
	if entry == byRule {
		u, err := d.Node.Uplinks(nil, IsHostName)
		if err == nil {
			u, err = d.withoutPods(u)
		}
		return u.Links, err
	}
	l, err := d.Node.LinkNamed(entry)
	if errors.Is(err, unix.ENODEV) || err == nil && !l.Ethernet {
		return nil, nil
	}
	return []netdev.Link{l}, err
}

// unknownWishes are the networks that have attachments and of which it is not known what
// they want: bpffs was lost.
func (d *Deps) unknownWishes(wishes []uplinkWish) ([]string, error) {
	known := map[string]bool{}
	for _, w := range wishes {
		known[w.network] = len(w.entries) > 0
	}
	var unknown []string
	for row, err := range d.Datapath.Maps.Ifaces.All() {
		if err != nil {
			return nil, err
		}
		if !known[row.Network] && !slices.Contains(unknown, row.Network) {
			unknown = append(unknown, row.Network)
		}
	}
	return unknown, nil
}

// releaseUplinks forgets what a network wants, "" for every one, if it has no attachment,
// and takes the programs off the devices that nobody wants then.
func (d *Deps) releaseUplinks(network string) error {
	wishes, err := d.deadWishes(network)
	if err != nil {
		return err
	}
	if len(wishes) == 0 {
		return d.detachLeft()
	}
	var dropped []uplinkWish
	_, detached, err := d.Datapath.SetUplinks(func() ([]int, error) {
		if dropped, err = d.deadWishes(network); err != nil {
			return nil, err
		}
		for _, w := range dropped {
			if err := d.writeWish(uplinkWish{network: w.network}); err != nil {
				return nil, err
			}
		}
		return d.wantedUplinks()
	})
	if err != nil || len(detached) == 0 {
		return err
	}
	return d.reviveUplinks(dropped)
}

// detachLeft takes off what was still on when whoever forgot the last wish was killed.
func (d *Deps) detachLeft() error {
	wishes, err := d.readWishes()
	if err != nil || len(wishes) > 0 {
		return err
	}
	on, err := d.Datapath.OnUplinks()
	if err != nil || !on {
		return err
	}
	_, _, err = d.Datapath.SetUplinks(d.wantedUplinks)
	return err
}

// reviveUplinks looks again: an ADD that owns its iface since releaseUplinks looked may
// have found its uplinks attached before they went.
func (d *Deps) reviveUplinks(dropped []uplinkWish) error {
	var names []string
	for _, w := range dropped {
		names = append(names, w.network)
	}
	still, err := d.unattached(names)
	if err != nil || len(still) == len(names) {
		return err
	}
	_, _, err = d.Datapath.SetUplinks(func() ([]int, error) {
		for _, w := range dropped {
			now, err := d.readWish(w.network)
			if err == nil && len(now.entries) == 0 && !slices.Contains(still, w.network) {
				err = d.writeWish(w)
			}
			if err != nil {
				return nil, err
			}
		}
		return d.wantedUplinks()
	})
	return err
}

// hasWish is true also where whoever wrote it was killed after the first directory.
func (d *Deps) hasWish(network string) bool {
	_, err := os.Lstat(filepath.Join(d.uplinkDir(), toPin.Replace(network)))
	return err == nil
}

// deadWishes are those of networks without attachments.
func (d *Deps) deadWishes(network string) ([]uplinkWish, error) {
	var wishes []uplinkWish
	var err error
	if network == "" {
		wishes, err = d.readWishes()
	} else if w, readErr := d.readWish(network); readErr != nil || len(w.entries) > 0 || d.hasWish(network) {
		wishes, err = []uplinkWish{w}, readErr
	}
	if err != nil || len(wishes) == 0 {
		return nil, err
	}
	var names []string
	for _, w := range wishes {
		names = append(names, w.network)
	}
	dead, err := d.unattached(names)
	return slices.DeleteFunc(wishes, func(w uplinkWish) bool { return !slices.Contains(dead, w.network) }), err
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// ErrPodsLive says that pods would lose their network.
var ErrPodsLive = errors.New("pods are there that culvert connects")

// Removal is one thing that Uninstall takes away.
type Removal struct {
	What string
	do   func() error
}

// Do takes it away. It is no error that it is gone.
func (r Removal) Do() error {
	if err := r.do(); err != nil {
		return fmt.Errorf("%s: %w", r.What, err)
	}
	return nil
}

// uninstall collects removals. It looks and changes nothing.
type uninstall struct {
	*Deps
	list []Removal
	pods []string // that live
}

func (u *uninstall) add(do func() error, format string, a ...any) {
	u.list = append(u.list, Removal{fmt.Sprintf(format, a...), do})
}

// Uninstall lists, in the order in which it is to be done, what takes everything of ours
// under one pinPath off the node; Datapath may be nil. While pods live it is ErrPodsLive,
// with the list, unless force is set: then veths of our own go, and pods on other plugins'
// veths lose their hostPorts and limits.
func Uninstall(d *Deps, force bool) ([]Removal, error) {
	u := &uninstall{Deps: d}
	for _, part := range []func() error{u.attachments, u.strangers, u.node, u.tunnels, u.filters, u.routes, u.pins} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	if len(u.pods) == 0 || force {
		return u.list, nil
	}
	shown := u.pods[:min(len(u.pods), 3)]
	return u.list, fmt.Errorf("%w: %d, as %s; stop them, or use --force", ErrPodsLive, len(u.pods), strings.Join(shown, ", "))
}

func (u *uninstall) attachments() error {
	if u.Datapath == nil {
		return nil
	}
	rows, err := maps.Collect(u.Datapath.Maps.Ifaces.All())
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b maps.Iface) int { return a.Ifindex - b.Ifindex })
	for _, i := range rows {
		if u.alive(i) {
			u.pods = append(u.pods, i.Container+"/"+i.IfName)
		}
		what := fmt.Sprintf("delete %s, its routes and rows, of %s", i.HostIfName, i.Owner)
		if i.Flags&maps.PodChained != 0 {
			what = fmt.Sprintf("take programs, shapers and rows off %s of %s", i.HostIfName, i.Owner)
		}
		u.add(func() error { return u.remove(i) }, "%s", what)
	}
	return nil
}

// strangers are veths of ours without a row, when bpffs was lost. Another pinPath's have
// rows there, and are not ours to delete.
func (u *uninstall) strangers() error {
	links, err := u.Node.LinksNamed(IsHostName)
	if err != nil {
		return err
	}
	filters, err := u.Node.ListFilters()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Kind != "veth" || u.hasRow(l) || !slices.ContainsFunc(filters, func(f loader.Filter) bool {
			return f.Ifindex == l.Index && loader.IsFilterOf(f, u.PinPath)
		}) {
			continue
		}
		u.pods = append(u.pods, l.Name)
		u.add(func() error { return u.Node.DeleteLink(l.Index) }, "delete %s, of which no row tells", l.Name)
	}
	return nil
}

func (u *uninstall) hasRow(l netdev.Link) bool {
	if u.Datapath == nil {
		return false
	}
	row, err := u.Datapath.Maps.Ifaces.Get(l.Index)
	return err == nil && row.HostIfName == l.Name
}

// node is what hostPorts and uplinks have of the node. Rows that nobody owns go first.
func (u *uninstall) node() error {
	if u.Datapath == nil {
		return nil
	}
	on, err := u.Datapath.Uplinks()
	if err != nil {
		return err
	}
	for _, index := range on {
		name := fmt.Sprint(index)
		if l, err := u.Node.Link(index); err == nil {
			name = l.Name
		}
		u.add(func() error { return u.Datapath.DetachUplink(index) }, "detach the programs from uplink %s", name)
	}
	if ports, err := u.Datapath.Maps.Hostports.Any(); err != nil {
		return err
	} else if ports || u.raised(acceptLocal) || u.raised(routeLocalnet) || u.Datapath.CheckHost() == nil || u.Datapath.SocketsAttached() {
		u.add(u.close, "detach the programs from lo and from the cgroups, and set back what hostPorts needed")
	}
	return nil
}

// close drops every row of a hostPort, and with the last one what they need.
func (u *uninstall) close() error {
	rows, err := maps.Collect(u.Datapath.Maps.Hostports.All())
	if err != nil {
		return err
	}
	return errors.Join(u.releaseHostports(rows), u.closeHost())
}

// filters are those that no pin tells of any more: on uplinks, lo and other plugins' veths.
func (u *uninstall) filters() error {
	filters, err := u.Node.ListFilters()
	if err != nil {
		return err
	}
	for _, f := range filters {
		l, err := u.Node.Link(f.Ifindex)
		if errors.Is(err, unix.ENODEV) || err == nil && (IsHostName(l.Name) || l.IsTunnel()) || !loader.IsFilterOf(f, u.PinPath) {
			continue
		}
		if err != nil {
			return err
		}
		if u.hasRow(l) { // a chained pod's: they go with it
			continue
		}
		program, _, _ := strings.Cut(f.Name, "@")
		u.add(func() error { return u.Node.DetachClsact(f.Ifindex, f.Egress) }, "detach filter %s from %s", program, l.Name)
	}
	return nil
}

// routes are those that lead nowhere; others go with their veths.
func (u *uninstall) routes() error {
	routes, err := u.Node.OwnRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Index != 0 {
			continue
		}
		u.add(func() error { return u.Node.DeleteRoute(r) }, "delete route unreachable %s", r.Dst)
	}
	return nil
}

var schemaDir = regexp.MustCompile(`^(gone_)?v[0-9]+(_filling)?$`)

// pins are the directories of every schema, and those that a migration which was killed
// left. Whatever else lies at pinPath stays.
func (u *uninstall) pins() error {
	dirs, err := filepath.Glob(filepath.Join(u.PinPath, "*v*"))
	if err != nil {
		return err
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !schemaDir.MatchString(filepath.Base(dir)) })
	for _, dir := range dirs {
		u.add(func() error { return os.RemoveAll(dir) }, "remove the pins in %s", dir)
	}
	if len(dirs) > 0 {
		u.add(u.removePinPath, "remove %s, if nothing else is in it", u.PinPath)
	}
	return nil
}

func (u *uninstall) removePinPath() error {
	err := os.Remove(u.PinPath)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

func TestChoosePorts(t *testing.T) {
	one := func(first, last int) []netdev.Ports { return []netdev.Ports{{First: first, Last: last}} }
	// Behind 20000-20999, as many holes as leave 18 ranges in all.
	holes := one(21000, 29999)
	for port := 62000; port < 63600; port += 100 {
		holes = append(holes, netdev.Ports{First: port, Last: port + 1})
	}
	for _, tt := range []struct {
		name   string
		taken  []netdev.Ports
		want   string
		shared bool
	}{
		{"defaults", one(32768, 60999), "20000-29999 61000-65535", false},
		{"nothing", nil, "20000-29999 61000-65535", false},
		{"around a range", one(15000, 30000), "61000-65535", false},
		{"a border", one(1024, 20000), "20001-29999 61000-65535", false},
		{"the other border", one(29999, 61000), "20000-29998 61001-65535", false},
		{"a hole", append(one(32768, 60999), one(25000, 25000)...), "20000-24999 25001-29999 61000-65535", false},
		{"the wrong way round", one(29000, 21000), "20000-29999 61000-65535", false},
		{"1000 left", one(1024, 64535), "64536-65535", false},
		{"999 left", one(1024, 64536), "20000-29999 61000-65535", true},
		{"none left", one(1, 65535), "20000-29999 61000-65535", true},
		{"the largest 16", holes, "20000-20999 61000-61999 62002-62099 62102-62199 62202-62299 62302-62399 62402-62499 " +
			"62502-62599 62602-62699 62702-62799 62802-62899 62902-62999 63002-63099 63102-63199 63202-63299 63502-65535", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, features := choosePorts(tt.taken)
			if shared := features == maps.FeatureSharedPorts; shared != tt.shared {
				t.Errorf("features %s", features)
			}
			if s := strings.Trim(fmt.Sprint(got), "[]"); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
			if want := strings.Trim(fmt.Sprint(pool), "[]"); want != "{20000 29999} {61000 65535}" {
				t.Errorf("the pool has changed: %s", want)
			}
		})
	}
}

// What the row of config says follows the node, and nothing is written when it does.
func TestPrivilegedPrepareMasquerade(t *testing.T) {
	node := netns.Wire(t, netns.Layout{Uplinks: 2}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		var log bytes.Buffer
		d, spec := newDeps(t, node, pod)
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		prepare := func() maps.NodeConfig {
			t.Helper()
			s, err := newSetup(d, spec)
			if err == nil {
				err = s.prepareMasquerade(t.Context())
			}
			config, err2 := d.Datapath.Maps.Config.Get()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			return config
		}
		spec.Masquerade = false
		if c := prepare(); c.PortCount() != 0 {
			t.Errorf("without ipMasq: %+v", c)
		}
		spec.Masquerade = true
		var want []maps.UplinkAddr
		for i, l := range spec.Uplinks.Links {
			if err := d.Datapath.AttachUplink(l.Index); err != nil {
				return err
			}
			want = append(want, maps.UplinkAddr{Ifindex: l.Index, Addr4: node.Uplinks[i].V4, Addr6: node.Uplinks[i].V6})
		}
		c := prepare()
		if c.PortCount() != 14536 || c.Features&maps.FeatureSharedPorts != 0 || !reflect.DeepEqual(c.Uplinks, want) {
			t.Errorf("defaults: %+v, want %+v", c, want)
		}
		if err := lockFree(d, func() { prepare() }); err != nil {
			t.Errorf("nothing has changed: %v", err)
		}
		node.Sysctl(t, "net/ipv4/ip_local_port_range", "1024 65000")
		if now := prepare(); now.PortCount() != 14536 || now.Features != c.Features|maps.FeatureSharedPorts || now.Build != c.Build {
			t.Errorf("few ports: %+v", now)
		}
		if !strings.Contains(log.String(), "ip_local_port_range") {
			t.Errorf("no warning: %s", log.String())
		}
		node.Sysctl(t, "net/ipv4/ip_local_port_range", "32768 60999")
		if now := prepare(); !reflect.DeepEqual(now, c) {
			t.Errorf("defaults again: %+v", now)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The tunnel's addresses come first, those that routes have the node send from before others that
// it still has; an ADD leaves them, and forgets those of a tunnel that is gone.
func TestPrivilegedRefreshTunnel(t *testing.T) {
	node := netns.Wire(t, netns.Layout{}).Nodes[0]
	pod := netns.New(t, "pod")
	err := node.Do(func() error {
		d, spec := newDeps(t, node, pod)
		config := func(what string, err error, want ...maps.UplinkAddr) {
			t.Helper()
			c, err2 := d.Datapath.Maps.Config.Get()
			if err != nil || err2 != nil {
				t.Fatal(what, err, err2)
			}
			if !reflect.DeepEqual(c.Uplinks, want) || (c.PortCount() > 0) != (len(want) > 0) {
				t.Errorf("%s: %+v, want %+v", what, c, want)
			}
		}
		_, err := d.RefreshTunnel()
		config("without a tunnel", err)
		ip := netip.MustParseAddr
		addrs := []netip.Addr{ip("10.9.0.0"), ip("10.1.0.0"), ip("10.8.0.0"), ip("fd00:1::")}
		index, err := d.Node.EnsureTunnel(netdev.TunnelConfig{MTU: 1400, Addrs: addrs, Attach: d.Datapath.AttachTunnel})
		if err == nil {
			_, err = d.Node.SyncRemoteRoutes([]netdev.RemoteRoute{
				{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Tunnel: true, Src: addrs[1]},
				{Prefix: netip.MustParsePrefix("fd00:2::/64"), Tunnel: true, Src: addrs[3]},
			})
		}
		if err != nil {
			return err
		}
		rows := []maps.UplinkAddr{{Ifindex: index, Addr4: addrs[1], Addr6: addrs[3]}, {Ifindex: index, Addr4: addrs[0]}, {Ifindex: index, Addr4: addrs[2]}}
		_, err = d.RefreshTunnel()
		config("with one", err, rows...)
		err = lockFree(d, func() { _, err = d.RefreshTunnel() })
		config("again", err, rows...)

		up := node.Uplinks[0]
		uplink := maps.UplinkAddr{Ifindex: spec.Uplinks.Links[0].Index, Addr4: up.V4, Addr6: up.V6}
		if err := d.Datapath.AttachUplink(uplink.Ifindex); err != nil {
			return err
		}
		_, err = d.refreshMasquerade()
		config("after an ADD", err, append(rows, uplink)...)
		if err := d.Node.DeleteLink(index); err != nil {
			return err
		}
		_, err = d.refreshMasquerade()
		config("after an ADD without the tunnel", err, uplink)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

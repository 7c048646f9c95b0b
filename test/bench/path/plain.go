// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

// raw is a veth pair between two namespaces: what nothing that joins pods can undercut.
func (s *stage) raw() error {
	client, err := s.client("raw client")
	if err != nil {
		return err
	}
	server, err := s.space("raw server")
	if err != nil {
		return err
	}
	if err := wire(server, "veth0", client, "veth0"); err != nil {
		return err
	}
	if err := address(client, "veth0", 20, 1); err != nil {
		return err
	}
	if err := address(server, "veth0", 20, 2); err != nil {
		return err
	}
	return s.plain(raw, client, server, "10.20.0.2", "fd00:20::2")
}

// routed has a namespace between them that forwards, and knows no netfilter.
func (s *stage) routed() error {
	client, err := s.client("routed client")
	if err != nil {
		return err
	}
	router, err := s.space("router")
	if err != nil {
		return err
	}
	server, err := s.space("routed server")
	if err != nil {
		return err
	}
	if err := forward(router); err != nil {
		return err
	}
	for i, ns := range []*netns.NS{client, server} {
		dev, net := fmt.Sprintf("veth%d", i), 21+i
		if err := wire(router, dev, ns, "eth0"); err != nil {
			return err
		}
		if err := address(router, dev, net, 1); err != nil {
			return err
		}
		if err := address(ns, "eth0", net, 2); err != nil {
			return err
		}
		if err := node.IP(ns, fmt.Sprintf("route add default via 10.%d.0.1", net), fmt.Sprintf("route add default via fd00:%d::1", net)); err != nil {
			return err
		}
	}
	return s.plain(routed, client, server, "10.22.0.2", "fd00:22::2")
}

func (s *stage) plain(name string, client, server *netns.NS, v4, six string) error {
	to, err := s.serve(server)
	if err != nil {
		return err
	}
	s.add(path{kinds: everything, client: client, server: to}, name, netip.MustParseAddr(v4), netip.MustParseAddr(six), port)
	return nil
}

func wire(a *netns.NS, devA string, b *netns.NS, devB string) error {
	if err := node.IP(a, fmt.Sprintf("link add %s type veth peer name %s netns %s", devA, devB, b.Path()), "link set "+devA+" up"); err != nil {
		return err
	}
	return node.IP(b, "link set "+devB+" up")
}

// address gives a device the host-th of 10.NET.0.0/24 and fd00:NET::/64.
func address(ns *netns.NS, dev string, net, host int) error {
	return node.IP(ns, fmt.Sprintf("addr add 10.%d.0.%d/24 dev %s", net, host, dev), fmt.Sprintf("addr add fd00:%d::%d/64 dev %s nodad", net, host, dev))
}

func forward(ns *netns.NS) error {
	_, err := ns.Run("", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	return err
}

// pinned are culvert's programs.
func pinned(dir string) func() (map[string]ran, error) {
	return func() (map[string]ran, error) {
		pins, err := filepath.Glob(dir + "/v*/progs/*")
		if err != nil {
			return nil, err
		}
		if len(pins) == 0 {
			return nil, fmt.Errorf("no programs below %s", dir)
		}
		runs := map[string]ran{}
		for _, pin := range pins {
			prog, err := ebpf.LoadPinnedProgram(pin, nil)
			if err != nil {
				return nil, err
			}
			r, err := statsOf(prog)
			_ = prog.Close()
			if err != nil {
				return nil, err
			}
			runs[filepath.Base(pin)] = r
		}
		return runs, nil
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package node makes throwaway nodes on which the benchmarks have a CNI chain make pods:
// culvert, or the reference plugins, each from its built binary.
package node

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"github.com/culvert-cni/culvert/test/netns"
)

// Binaries say where the built programs are.
type Binaries struct{ Culvert, Ref string }

// Flags has the command line say it.
func (b *Binaries) Flags() {
	flag.StringVar(&b.Culvert, "bin", "bin", "where culvert is")
	flag.StringVar(&b.Ref, "ref", "bin/ref", "where the reference plugins are")
}

// Node is a network namespace with an uplink, on which one chain makes pods. The node has
// Addr there and Addr6, whom it is wired to Gateway and Gateway6, where its default
// routes lead.
type Node struct {
	*netns.NS
	Chain Chain
	Pins  string // of culvert, on bpffs

	dir  string
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	pods []*Pod // made so far
}

var (
	Addr    = netip.MustParseAddr("10.10.0.10")
	Gateway = netip.MustParseAddr("10.10.0.1")

	Addr6    = netip.MustParseAddr("fd00:10::10")
	Gateway6 = netip.MustParseAddr("fd00:10::1")
)

// New makes a node whose uplink ends in peer, or in the node itself if that is nil.
func New(c Chain, bin Binaries, peer *netns.NS) (*Node, error) {
	n := &Node{Chain: c}
	if err := n.prepare(bin); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if err := n.wire(peer); err != nil {
		return nil, errors.Join(fmt.Errorf("wire node: %w", err), n.Close())
	}
	return n, nil
}

func (n *Node) prepare(bin Binaries) (err error) {
	if n.NS, err = netns.TryNew("node of " + n.Chain.Name); err != nil {
		return err
	}
	// Named so that a test removes the pins if we are killed (netns.PinPath).
	if n.dir, err = os.MkdirTemp("", fmt.Sprintf("culvert-test-%d-", os.Getpid())); err != nil {
		return err
	}
	n.Pins = filepath.Join("/sys/fs/bpf", filepath.Base(n.dir))
	ours, err1 := filepath.Abs(bin.Culvert)
	ref, err2 := filepath.Abs(bin.Ref)
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{ours, ref}, filepath.Join(n.dir, "cache"), nil)
	list, err3 := libcni.ConfListFromBytes([]byte(n.Chain.conflist(n.dir, n.Pins)))
	n.list = list
	return errors.Join(err1, err2, err3)
}

func (n *Node) wire(peer *netns.NS) error {
	if peer == nil {
		peer = n.NS
	}
	if err := IP(n.NS, "link add up0 type veth peer name out0 netns "+peer.Path(), "link set up0 up",
		fmt.Sprintf("addr add %s/24 dev up0", Addr), fmt.Sprintf("addr add %s/64 dev up0 nodad", Addr6)); err != nil {
		return err
	}
	lines := []string{"link set out0 up"}
	if peer != n.NS {
		lines = append(lines, fmt.Sprintf("addr add %s/24 dev out0", Gateway), fmt.Sprintf("addr add %s/64 dev out0 nodad", Gateway6))
	}
	if err := IP(peer, lines...); err != nil {
		return err
	}
	return IP(n.NS, fmt.Sprintf("route add default via %s", Gateway), fmt.Sprintf("route add default via %s", Gateway6))
}

// IP runs lines of ip(8) in a namespace.
func IP(ns *netns.NS, lines ...string) error {
	var in string
	for _, l := range lines {
		in += l + "\n"
	}
	_, err := ns.Run(in, "ip", "-batch", "-")
	return err
}

// Close lets the namespaces of the node and its pods go, and takes away what the node left
// outside. Idempotent.
func (n *Node) Close() error {
	for _, p := range n.pods {
		p.Close()
	}
	if n.NS != nil {
		n.NS.Close()
	}
	if n.dir == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(n.dir), os.RemoveAll(n.Pins))
}

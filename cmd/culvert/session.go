// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// session is what the verbs share: the configuration and ways to the node.
type session struct {
	conf *conf
	args *skel.CmdArgs
	log  *slog.Logger
	node *netdev.Handle
	stop <-chan struct{} // closed when we are told to stop; nil: never

	// What the verbs about a pod that lives need besides.
	ns      *netdev.Namespace
	outside netdev.Uplinks

	file *os.File
}

// openPodSession opens a session about one pod. It finds what is wrong with the request
// in this order: configuration, names, namespace, IPAM plugin, uplinks.
func openPodSession(verb string, args *skel.CmdArgs, c *conf) (*session, error) {
	if err := netconf.CheckNames(c.name, args.ContainerID, args.IfName); err != nil {
		return nil, err
	}
	ns, err := openNetns(args)
	if err != nil {
		return nil, err
	}
	s, err := openSession(verb, args, c)
	if err != nil {
		ns.Close()
		return nil, err
	}
	s.ns = ns
	if c.ipamType != "" {
		err = s.ipam().Exists()
	}
	if err == nil {
		s.outside, err = s.uplinks()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// openSession changes nothing, but that it makes the log file.
func openSession(verb string, args *skel.CmdArgs, c *conf) (*session, error) {
	s := &session{conf: c, args: args, log: slog.New(slog.DiscardHandler)}
	if c.logFile != "" {
		f, out, err := openLog(c.logFile)
		if err != nil {
			return nil, err
		}
		s.file = f
		handler := slog.NewJSONHandler(out, &slog.HandlerOptions{Level: c.logLevel})
		s.log = slog.New(handler).With("verb", verb, "network", c.name, "container", args.ContainerID, "ifname", args.IfName)
	}
	s.log.Debug("called", "netns", args.Netns, "args", args.Args, "stdin", json.RawMessage(args.StdinData))
	node, err := netdev.Open()
	if err != nil {
		s.close()
		return nil, err
	}
	s.node = node
	return s, nil
}

func (s *session) close() {
	if s.ns != nil {
		s.ns.Close()
	}
	if s.node != nil {
		s.node.Close()
	}
	if s.file != nil {
		s.file.Close()
	}
}

func (s *session) options() loader.Options {
	return loader.Options{PinPath: s.conf.pinPath, Attach: s.conf.attach, Netlink: s.node, Log: s.log, Stop: s.stop}
}

func (s *session) owner() maps.Owner {
	return maps.Owner{Network: s.conf.name, Container: s.args.ContainerID, IfName: s.args.IfName}
}

func (s *session) deps(dp *loader.Datapath) *podnet.Deps {
	d := &podnet.Deps{Node: s.node, Datapath: dp, PinPath: s.conf.pinPath, Log: s.log}
	if s.conf.ipamType != "" {
		d.IPAM = s.ipam()
	}
	if s.conf.ipMasq && s.conf.nonMasqOwn {
		d.OwnRanges = s.conf.nonMasq
	}
	return d
}

// spec is what ADD makes and CHECK looks for.
func (s *session) spec() podnet.Spec {
	c := s.conf
	spec := podnet.Spec{
		Owner: s.owner(), Netns: s.ns, Uplinks: s.outside,
		MTU: c.mtu, MAC: c.mac, Hostports: c.hostports, Loopback: c.loopback,
		Ingress: c.ingress, Egress: c.egress, DNS: c.dns,
		Exclude: c.exclude, Masquerade: c.ipMasq, NonMasquerade: c.nonMasq, NonMasqueradeOwn: c.nonMasqOwn,
		SourceCheck: c.sourceCheck,
	}
	if c.chained {
		spec.Prev = c.prevResult
	}
	return spec
}

// openNetns opens CNI_NETNS: it has to be a network namespace and not ours, unless the
// runtime says that it means that.
func openNetns(args *skel.CmdArgs) (*netdev.Namespace, error) {
	ns, err := netdev.OpenNamespace(args.Netns)
	if err != nil {
		return nil, invalidNetns(args.Netns, err.Error())
	}
	if args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "true") {
		return ns, nil
	}
	ours, err := ns.IsOurs()
	if err == nil && ours {
		err = fmt.Errorf("it is the network namespace of the plugin itself")
	}
	if err != nil {
		ns.Close()
		return nil, invalidNetns(args.Netns, err.Error())
	}
	return ns, nil
}

func invalidNetns(path, why string) error {
	return types.NewError(types.ErrInvalidNetNS, "invalid CNI_NETNS", fmt.Sprintf("%q: %s", path, why))
}

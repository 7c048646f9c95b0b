// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
)

const rootHelp = `culvertd follows the cluster on one node: it writes the configuration that the container
runtime starts pods by, and the routes to other nodes' pods. Pods start, and their packets
flow, without it; so it may be killed, upgraded, or cut off from the API server at any time.

docs/culvertd.md tells what it writes on the node, and docs/kubernetes.md how to install it.`

// options are the command line.
type options struct {
	agent.Config

	nodeName   string
	kubeconfig string
	ranges     string
	clusterNet []string
	tunnel     string
	criSocket  string
	listen     string
	gcGrace    time.Duration
	nodeGrace  time.Duration
	logLevel   string
}

func newRoot(out, log io.Writer) *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "culvertd",
		Short:         "The agent of a Kubernetes node",
		Long:          rootHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			logger, err := newLog(log, o.logLevel)
			if err != nil {
				return err
			}
			return run(c.Context(), o, logger)
		},
	}
	root.SetOut(out)
	o.flags(root.Flags())
	root.AddCommand(newInstall(out, log), newVersion(out))
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node (environment: NODE_NAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; without it, as a pod does")
	f.StringVar(&o.ranges, "ranges", string(kube.RangesNode), "where this node's ranges come from: its podCIDRs (node), or blocks of IPPools (pools)")
	f.StringSliceVar(&o.clusterNet, "cluster-cidr", nil, "ranges of the whole cluster, to which nothing is masqueraded; other nodes' own are known without")
	f.BoolVar(&o.Masquerade, "ip-masq", true, "masquerade what pods send out of the cluster")
	f.IntVar(&o.MTU, "mtu", 0, "MTU of pods; 0: the narrowest uplink's, less what the tunnel takes where a node is reached by it")
	f.StringVar(&o.tunnel, "tunnel", string(agent.TunnelAuto), "nodes reached by VXLAN: those on no subnet of ours (auto), all (always), none (never: the network knows the way)")
	f.IntVar(&o.TunnelPort, "tunnel-port", netdev.TunnelPort, "UDP port of VXLAN, the same on all nodes")
	f.StringVar(&o.ConfDir, "cni-conf-dir", "/etc/cni/net.d", `directory of `+agent.ConflistName+`; "": write none`)
	f.StringVar(&o.CNIVersion, "cni-version", "", "version of CNI in the configuration; without it 1.1.0, or 1.0.0 for containerd before 2.0")
	f.StringVar(&o.PinPath, "pin-path", loader.DefaultPinPath, "directory of the pins, on a bpffs")
	f.StringVar(&o.criSocket, "cri-socket", "", "the container runtime's socket; without it nothing is collected")
	f.StringVar(&o.listen, "listen", "127.0.0.1:9377", `address of /healthz, /readyz and /metrics; "": none`)
	f.DurationVar(&o.gcGrace, "gc-grace", 10*time.Minute, "age from which what no sandbox has is collected; 0: never")
	f.DurationVar(&o.nodeGrace, "node-grace", 5*time.Minute, "time after which the blocks of a Node that is gone are given back")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// check decodes what pflag cannot.
func (o *options) check() error {
	if o.nodeName == "" {
		return fmt.Errorf("--node-name is missing: give the Node's name, or set NODE_NAME")
	}
	if mode := kube.RangesMode(o.ranges); mode != kube.RangesNode && mode != kube.RangesPools {
		return fmt.Errorf("--ranges %q: use node or pools", o.ranges)
	}
	switch o.Tunnel = agent.Tunnelling(o.tunnel); o.Tunnel {
	case agent.TunnelAuto, agent.TunnelAlways, agent.TunnelNever:
	default:
		return fmt.Errorf("--tunnel %q: use auto, always or never", o.tunnel)
	}
	if o.MTU != 0 && (o.MTU < 1280 || o.MTU > 65535) {
		return fmt.Errorf("--mtu %d: use 0, or 1280 to 65535", o.MTU)
	}
	if o.TunnelPort < 1 || o.TunnelPort > 65535 {
		return fmt.Errorf("--tunnel-port %d: use 1 to 65535", o.TunnelPort)
	}
	if o.gcGrace < 0 {
		return fmt.Errorf("--gc-grace %s: use a time, or 0 for never", o.gcGrace)
	}
	if o.nodeGrace <= 0 {
		return fmt.Errorf("--node-grace %s: use a time above 0", o.nodeGrace)
	}
	o.ClusterCIDR = nil
	for _, s := range o.clusterNet {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("--cluster-cidr %q is no range of addresses, as 10.0.0.0/8", s)
		}
		o.ClusterCIDR = append(o.ClusterCIDR, p.Masked())
	}
	return nil
}

func newLog(out io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: l})), nil
}

func newVersion(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the build of the datapath",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(out, "culvertd %s, datapath build %016x, schema %d; Linux %s or later\n", version, bpf.Build(), loader.Schema, loader.LeastKernel)
			return err
		},
	}
}

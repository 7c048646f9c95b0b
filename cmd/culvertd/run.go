// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
)

// run puts the agent together and works until ctx ends.
func run(ctx context.Context, o *options, log *slog.Logger) error {
	klog.SetSlogLogger(log.With("from", "client-go"))
	config, err := apiConfig(o.kubeconfig) // the last that may be wrong of the command line: before anything is touched
	if err != nil {
		return err
	}
	handle, err := netdev.Open()
	if err != nil {
		return err
	}
	defer handle.Close()
	n := &node{net: handle, pinPath: o.PinPath, log: log, loads: mayLoad()}
	load(n, log)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	blocks, err := kube.NewClient(config)
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	cluster := kube.New(kube.Options{
		Client: client, Blocks: blocks, NodeName: o.nodeName, Mode: kube.RangesMode(o.ranges),
		Leases: newLeases(o.PinPath).list, Log: log, ReclaimAfter: o.nodeGrace,
	})
	teller := agent.NewNodeTeller(client, o.nodeName)
	defer teller.Close()
	runtime, err := openRuntime(ctx, o, log)
	if err != nil {
		return err
	}
	if runtime != nil {
		defer runtime.Close()
	}
	a := &agent.Agent{Config: o.Config, Cluster: cluster, Node: n, Teller: teller, Log: log, Now: time.Now}
	log.Info("started", "version", version, "node", o.nodeName)
	return work(ctx, o, a, cluster, runtime, log)
}

// load loads the datapath, or puts this build's programs in the place of an older one's, before
// anything else is known. What keeps it from that is told with the node's condition.
func load(n *node, log *slog.Logger) {
	dp, err := n.open()
	if err != nil {
		log.Error("the datapath is not loaded", "error", err)
		return
	}
	dp.Close()
}

// work runs the parts; the first that cannot go on ends all.
func work(ctx context.Context, o *options, a *agent.Agent, cluster *kube.Cluster, runtime *agent.Runtime, log *slog.Logger) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return cluster.Run(ctx) })
	group.Go(func() error {
		a.Run(ctx)
		return nil
	})
	if o.listen != "" {
		group.Go(func() error {
			if err := agent.Serve(ctx, o.listen, a.Handler(newMetrics(o, a))); err != nil {
				return fmt.Errorf("--listen %q: %w", o.listen, err)
			}
			return nil
		})
	}
	if runtime != nil && o.gcGrace > 0 {
		c := &agent.Collector{Sandboxes: runtime, Attachments: &attachments{pinPath: o.PinPath, log: log}, Grace: o.gcGrace, Log: log}
		group.Go(func() error {
			c.Run(ctx)
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		log.Info("ended; routes, programs and the configuration stay")
	}
	return err
}

// apiConfig is that of a file, or of the pod that we are in.
func apiConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the API server as a pod does, without --kubeconfig: %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	config.UserAgent = "culvertd/" + version
	return config, nil
}

// openRuntime gives nil where no socket is named. It decides on the version of CNI.
func openRuntime(ctx context.Context, o *options, log *slog.Logger) (*agent.Runtime, error) {
	if o.criSocket == "" {
		o.CNIVersion = cmp.Or(o.CNIVersion, agent.LatestCNI)
		return nil, nil
	}
	r, err := agent.OpenRuntime(o.criSocket, os.Getenv("POD_UID"))
	if err != nil || o.CNIVersion != "" {
		return r, err
	}
	if o.CNIVersion, err = r.CNIVersion(ctx); err != nil {
		log.Warn("the runtime does not say what it is: taken for a new one", "error", err)
		o.CNIVersion = agent.LatestCNI
	}
	return r, nil
}

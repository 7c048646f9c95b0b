// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/file"
	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/cmd/internal/podnet"
	"github.com/culvert-cni/culvert/loader"
)

const metricsHelp = `Print what the node counts in the text format of Prometheus. There is no daemon to scrape:
run it from a timer, and let node_exporter's textfile collector read the file. With
--output-file the file is replaced in one step, so that no reader sees half of it.

docs/metrics.md lists the metrics, and alerts that are worth having.`

const metricsExample = `  culvertctl metrics
  culvertctl metrics --output-file /var/lib/node_exporter/textfile/culvert.prom`

func newMetrics(a *app) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:     "metrics",
		Short:   "Print counters and gauges for Prometheus",
		Long:    metricsHelp,
		Example: metricsExample,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.output != "table" {
				return usage("metrics knows one format, that of Prometheus: leave --output away")
			}
			var text bytes.Buffer
			if err := writeMetrics(a, &text); err != nil {
				return err
			}
			if path != "" {
				return replaceFile(path, text.Bytes())
			}
			_, err := text.WriteTo(a.out)
			return err
		},
	}
	c.Flags().StringVar(&path, "output-file", "", "file to replace, in the place of stdout")
	return c
}

func writeMetrics(a *app, out io.Writer) error {
	node, err := metrics.Read(a.source())
	if err != nil {
		return err
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(node); err != nil {
		return err
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile lets everybody read the file, as node_exporter is not root.
func replaceFile(path string, text []byte) error {
	err := file.Replace(path, text, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: make the directory, or name another one", err)
	}
	return err
}

// source is what metrics are read from.
func (a *app) source() metrics.Source {
	return metrics.Source{PinPath: a.pinPath, Version: version, Amiss: func() ([]loader.Fault, error) {
		handle, err := netdev.Open()
		if err != nil {
			return nil, err
		}
		defer handle.Close()
		deps := &podnet.Deps{Node: handle, PinPath: a.pinPath, Log: slog.New(slog.DiscardHandler)}
		if deps.Datapath, err = loader.Open(loader.Options{PinPath: a.pinPath, Netlink: handle}); err != nil {
			deps.Datapath = nil // which the loader tells of
		} else {
			defer deps.Datapath.Close()
		}
		return podnet.Inspect(deps, true)
	}}
}

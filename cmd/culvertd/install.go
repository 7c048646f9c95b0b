// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/agent"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
)

const installHelp = `Copy culvert, culvert-ipam and culvertctl to where the container runtime finds plugins, each
by a file beside it that is renamed; then load the datapath, or put this build's programs in
the place of an older one's. What is there already is left alone. It mounts a bpffs at
/sys/fs/bpf where none is. If nothing was loaded, as after a boot, the configuration that
culvertd wrote is removed: pods start when culvertd knows what ranges the node has by now.

It is what the DaemonSet's init container does, which has the privileges that the agent then
goes without.`

func newInstall(out, log io.Writer) *cobra.Command {
	var from, to, pinPath, confDir string
	c := &cobra.Command{
		Use:   "install",
		Short: "Copy the plugins, and load the datapath",
		Long:  installHelp,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// The plugins first: one of another build would put its own programs back.
			err := agent.Install(from, to, func(path string) { fmt.Fprintln(out, "installed", path) })
			if err != nil || pinPath == "" {
				return err
			}
			return install(out, log, pinPath, confDir)
		},
	}
	c.Flags().StringVar(&from, "from", "/bin", "directory of the programs")
	c.Flags().StringVar(&to, "to", "/opt/cni/bin", "directory of the node's plugins")
	c.Flags().StringVar(&pinPath, "pin-path", loader.DefaultPinPath, `directory of the pins; "": load nothing`)
	c.Flags().StringVar(&confDir, "cni-conf-dir", "/etc/cni/net.d", "directory of "+agent.ConflistName)
	return c
}

func install(out, log io.Writer, pinPath, confDir string) error {
	logger, err := newLog(log, "warn")
	if err != nil {
		return err
	}
	handle, err := netdev.Open()
	if err != nil {
		return err
	}
	defer handle.Close()
	n := &node{net: handle, pinPath: pinPath, log: logger, loads: true, did: func(what string) { fmt.Fprintln(out, what) }}
	dp, err := n.open()
	if err != nil {
		return fmt.Errorf("load the datapath: %w", err)
	}
	defer dp.Close()
	if !dp.Fresh() {
		return nil
	}
	removed, err := agent.Forget(confDir)
	if removed {
		fmt.Fprintln(out, "removed", agent.ConflistName, "of before the boot: culvertd writes it anew")
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/bpf"
)

type versionView struct {
	Version string `json:"version"`
	Build   string `json:"build"` // of the object that this binary would load
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the build of the datapath it belongs to",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionView{version, fmt.Sprintf("%016x", bpf.Build())}
			if a.output == "json" {
				return showJSON(a.out, v)
			}
			_, err := fmt.Fprintf(a.out, "culvertctl %s, datapath build %s\n", v.Version, v.Build)
			return err
		},
	}
}

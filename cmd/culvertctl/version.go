// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/loader"
)

type versionView struct {
	Version string `json:"version"`
	Build   string `json:"build"` // of the object that this binary would load
	Schema  int    `json:"schema"`
	Kernel  string `json:"kernel"` // the oldest that it runs on
	// CNI are the versions of the protocol that a plugin of this version speaks.
	CNI []string `json:"cniVersions"`
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the build of the datapath, and what it works with",
		Example: "  culvertctl version -o json | jq -r .build",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionView{version, fmt.Sprintf("%016x", bpf.Build()), loader.Schema, loader.LeastKernel, cniversion.All.SupportedVersions()}
			if a.output != "table" {
				return a.encode(v)
			}
			_, err := fmt.Fprintf(a.out, "culvertctl %s, datapath build %s, schema %d; Linux %s or later, CNI %s\n",
				v.Version, v.Build, v.Schema, v.Kernel, strings.Join(v.CNI, ", "))
			return err
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
	"github.com/culvert-cni/culvert/maps"
)

// What a shell offers when the user asks it to complete a line: bash, zsh and fish.

// addCompletion adds the verb, and values of the flags that every verb has.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		for _, shell := range c.Commands() {
			if c.Name() == "completion" && shell.Name() == "powershell" {
				c.RemoveCommand(shell)
			}
		}
	}
	completeFlag(root, "output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(root, "pin-path", directories)
}

func completeFlag(c *cobra.Command, name string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(name, f); err != nil {
		panic(err) // the flag is not there: a mistake in this program, which every test meets
	}
}

func directories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completePod offers the node's pods: containers' ids, each with its interface where a
// container has several, beside their addresses. Where they cannot be read it offers nothing.
func completePod(a *app) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		d, err := a.open()
		if err != nil || len(args) > 0 {
			return nil, none
		}
		defer d.Close()
		ifaces, err := maps.Collect(d.Maps.Ifaces.All())
		if err != nil {
			return nil, none
		}
		return podNames(metrics.Youngest(ifaces)), none
	}
}

func podNames(ifaces []maps.Iface) []cobra.Completion {
	interfaces := map[string]int{}
	for _, i := range ifaces {
		interfaces[i.Container]++
	}
	var list []cobra.Completion
	for _, i := range ifaces {
		name := i.Container
		if interfaces[name] > 1 {
			name += "/" + i.IfName
		}
		list = append(list, cobra.CompletionWithDesc(name, joined(i.Addrs)))
		for _, addr := range i.Addrs {
			list = append(list, cobra.CompletionWithDesc(addr.String(), short(i.Container)))
		}
	}
	return list
}

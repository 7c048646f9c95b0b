// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// labdns is CoreDNS with the plugins that a lab cluster needs: all of them take far longer to build. It is
// built in a module of its own (build-kubernetes.sh), so that ours does not require CoreDNS.
// The end-to-end tests ask for "hosts" and "log". "template" comes last, so that it answers what nothing else did: the lab has no DNS server above it.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	dnsserver.Directives = []string{"health", "ready", "errors", "log", "cache", "hosts", "kubernetes", "template"}
	coremain.Run()
}

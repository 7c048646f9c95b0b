// SPDX-License-Identifier: Apache-2.0

// Command routed is a CNI plugin for tests: it connects a pod as plugins with a policy
// engine do. The pod has a veth with addresses of full length, its gateway is
// 169.254.1.1, for which the node answers by proxy ARP, and its result tells of the
// node's end alone.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// hostMAC is that of every veth's end on the node.
const hostMAC = "ee:ee:ee:ee:ee:ee"

type conf struct {
	CNIVersion string
	IPAM       struct{ Type string }
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: nothing, Status: nothing}, version.All, "routed, for tests")
}

func nothing(*skel.CmdArgs) error { return nil }

// hostName is the node's end, made of who it is for.
func hostName(args *skel.CmdArgs) string {
	sum := sha256.Sum256([]byte(args.ContainerID + "/" + args.IfName))
	return fmt.Sprintf("cali%x", sum[:5])
}

func add(args *skel.CmdArgs) error {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return err
	}
	r, err := invoke.DelegateAdd(context.Background(), c.IPAM.Type, args.StdinData, nil)
	if err != nil {
		return err
	}
	result, err := current.NewResultFromResult(r)
	if err != nil {
		return err
	}
	if err := connect(args, result.IPs); err != nil {
		_ = del(args)
		return err
	}
	out := &current.Result{CNIVersion: current.ImplementedSpecVersion, Interfaces: []*current.Interface{{Name: hostName(args)}}}
	for _, ip := range result.IPs {
		out.IPs = append(out.IPs, &current.IPConfig{Address: whole(ip.Address.IP)})
	}
	return types.PrintResult(out, c.CNIVersion)
}

func whole(ip net.IP) net.IPNet {
	if v4 := ip.To4(); v4 != nil {
		return net.IPNet{IP: v4, Mask: net.CIDRMask(32, 32)}
	}
	return net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)}
}

func connect(args *skel.CmdArgs, ips []*current.IPConfig) error {
	host, inside := hostName(args), args.IfName
	node := []string{
		"link add %[1]s address " + hostMAC + " type veth peer name %[2]s netns %[3]s",
	}
	pod := []string{"link set %[2]s up"}
	for _, ip := range ips {
		addr := whole(ip.Address.IP)
		if addr.IP.To4() != nil {
			pod = append(pod, "addr add "+addr.String()+" dev %[2]s", "route add 169.254.1.1 dev %[2]s scope link", "route add default via 169.254.1.1 dev %[2]s")
		} else {
			pod = append(pod, "addr add "+addr.String()+" dev %[2]s nodad", "route add default via fe80::ecee:eeff:feee:eeee dev %[2]s")
		}
	}
	fill := func(lines []string) string {
		return strings.NewReplacer("%[1]s", host, "%[2]s", inside, "%[3]s", args.Netns).Replace(strings.Join(lines, "\n") + "\n")
	}
	if err := run(fill(node), "ip", "-batch", "-"); err != nil {
		return err
	}
	for key, value := range map[string]string{
		"ipv4/conf/%s/proxy_arp": "1", "ipv4/conf/%s/rp_filter": "0", "ipv4/neigh/%s/proxy_delay": "0", "ipv4/ip_forward": "1",
		"ipv6/conf/%s/accept_dad": "0", "ipv6/conf/%s/accept_ra": "0", "ipv6/conf/all/forwarding": "1",
	} {
		if err := os.WriteFile("/proc/sys/net/"+strings.ReplaceAll(key, "%s", host), []byte(value), 0o644); err != nil {
			return err
		}
	}
	up := []string{"link set %[1]s up"}
	for _, ip := range ips {
		up = append(up, "route add "+fmt.Sprint(&net.IPNet{IP: ip.Address.IP, Mask: whole(ip.Address.IP).Mask})+" dev %[1]s")
	}
	if err := run(fill(up), "ip", "-batch", "-"); err != nil {
		return err
	}
	return run(fill(pod), "nsenter", "--net="+args.Netns, "ip", "-batch", "-")
}

func check(args *skel.CmdArgs) error { return run("", "ip", "link", "show", "dev", hostName(args)) }

func del(args *skel.CmdArgs) error {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return err
	}
	_ = run("", "ip", "link", "del", "dev", hostName(args)) // may be gone
	return invoke.DelegateDel(context.Background(), c.IPAM.Type, args.StdinData, nil)
}

func run(stdin string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s (%s)", strings.Join(argv, " "), err, out, stdin)
	}
	return nil
}

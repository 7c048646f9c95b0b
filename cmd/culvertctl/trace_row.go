// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-cni/culvert/maps"
)

// traceRow is a packet at a hook, as JSON has it.
type traceRow struct {
	Time      time.Time `json:"time"`
	Hook      string    `json:"hook"`
	Verdict   string    `json:"verdict"`
	Reason    string    `json:"reason,omitempty"` // of a drop
	Device    string    `json:"device"`
	Pod       string    `json:"pod,omitempty"`       // container and interface of the device's, else the sender's or receiver's
	OutDevice string    `json:"outDevice,omitempty"` // of a redirect
	OutPod    string    `json:"outPod,omitempty"`
	Proto     string    `json:"proto,omitempty"` // no IP: absent
	Src       string    `json:"src,omitempty"`   // the packet as it came
	Dst       string    `json:"dst,omitempty"`
	ToSrc     string    `json:"toSrc,omitempty"` // as it leaves
	ToDst     string    `json:"toDst,omitempty"`
	TCPFlags  string    `json:"tcpFlags,omitempty"`
	ICMPType  *uint8    `json:"icmpType,omitempty"`
	Fragment  string    `json:"fragment,omitempty"` // first or later
	Ethertype string    `json:"ethertype"`
	Length    int       `json:"length"` // bytes of the frame
}

// tracePrinter knows what an event does not say.
type tracePrinter struct {
	set    *maps.Set
	booted time.Time // wall clock at 0 of CLOCK_MONOTONIC
	names  map[int]string
}

func newTracePrinter(set *maps.Set, booted time.Time) *tracePrinter {
	return &tracePrinter{set, booted, map[int]string{}}
}

func (p *tracePrinter) row(e maps.Event) traceRow {
	r := traceRow{
		Time: p.booted.Add(e.Time), Hook: e.Hook.String(), Verdict: e.Verdict.String(), Fragment: e.Piece.String(),
		Ethertype: fmt.Sprintf("0x%04x", e.Ethertype), Length: e.Length, TCPFlags: tcpFlags(e),
	}
	if e.Reason != 0 {
		r.Reason = e.Reason.String()
	}
	if e.Tuple.Src.Addr().IsValid() || e.Tuple.Dst.Addr().IsValid() {
		r.Proto = etherName(e)
		r.Src, r.Dst = traceEnd(e, e.Tuple.Src), traceEnd(e, e.Tuple.Dst)
		r.ToSrc, r.ToDst = traceEnd(e, e.To.Src), traceEnd(e, e.To.Dst)
	}
	if isICMP(e.Tuple.Proto) {
		r.ICMPType = &e.ICMPType
	}
	var pod, out maps.Iface
	r.Device, pod = p.device(e.Ifindex)
	for _, at := range []netip.AddrPort{e.Tuple.Src, e.To.Dst, e.Tuple.Dst} {
		if pod.Generation == 0 {
			pod = p.owner(at.Addr())
		}
	}
	r.Pod = podName(pod)
	if e.OutIfindex != 0 {
		r.OutDevice, out = p.device(e.OutIfindex)
		r.OutPod = podName(out)
	}
	return r
}

// show prints a packet by itself: a line, or a document of YAML.
func (r traceRow) show(a *app, out io.Writer) error {
	line, end := r.line(), ""
	switch {
	case a.output == "json":
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		return e.Encode(r)
	case a.output == "yaml":
		text, err := yaml.Marshal(r)
		if err != nil {
			return err
		}
		line, end = "---", string(text)
	case a.colour && r.Reason != "":
		line = "\x1b[" + red + "m" + line + "\x1b[0m"
	}
	_, err := fmt.Fprintf(out, "%s\n%s", line, end)
	return err
}

// line is a packet for people: what is not there, or as before, is left out.
func (r traceRow) line() string {
	var b strings.Builder
	verdict := strings.TrimSpace(r.Verdict + " " + r.Reason)
	fmt.Fprintf(&b, "%s %-11s %-10s %s", r.Time.Local().Format("15:04:05.000000"), r.Hook, verdict, cmp.Or(r.Proto, "ethertype "+r.Ethertype))
	if r.Src != "" || r.Dst != "" {
		fmt.Fprintf(&b, " %s > %s", r.Src, r.Dst)
	}
	if r.TCPFlags != "" {
		fmt.Fprintf(&b, " [%s]", r.TCPFlags)
	}
	if r.ICMPType != nil {
		fmt.Fprintf(&b, " type %d", *r.ICMPType)
	}
	if r.Fragment != "" {
		fmt.Fprintf(&b, " %s fragment", r.Fragment)
	}
	fmt.Fprintf(&b, " len %d", r.Length)
	if r.ToSrc != r.Src || r.ToDst != r.Dst {
		fmt.Fprintf(&b, " as %s > %s", r.ToSrc, r.ToDst)
	}
	fmt.Fprintf(&b, " on %s", r.Device)
	if r.OutDevice != "" {
		fmt.Fprintf(&b, " to %s", r.OutDevice)
	}
	if pod := cmp.Or(r.OutPod, r.Pod); pod != "" {
		fmt.Fprintf(&b, " pod %s", shortPod(pod))
	}
	return b.String()
}

// device names a device, and the attachment it is of, if any.
func (p *tracePrinter) device(ifindex int) (string, maps.Iface) {
	pod, err := p.set.Ifaces.Get(ifindex)
	if err == nil && pod.HostIfName != "" {
		return pod.HostIfName, pod
	}
	if _, ok := p.names[ifindex]; !ok {
		p.names[ifindex] = fmt.Sprintf("if%d", ifindex)
		if dev, err := net.InterfaceByIndex(ifindex); err == nil {
			p.names[ifindex] = dev.Name
		}
	}
	return p.names[ifindex], pod
}

// owner is the attachment that has the address; zero if none has.
func (p *tracePrinter) owner(a netip.Addr) maps.Iface {
	if !a.IsValid() {
		return maps.Iface{}
	}
	pod, err := p.set.Pods.Get(a)
	if err != nil {
		return maps.Iface{}
	}
	i, err := p.set.Ifaces.Get(pod.Ifindex)
	if err != nil || i.Generation != pod.Generation {
		return maps.Iface{}
	}
	return i
}

// podName is what --pod takes.
func podName(i maps.Iface) string {
	if i.Generation == 0 {
		return ""
	}
	return i.Container + "/" + i.IfName
}

func shortPod(pod string) string {
	container, ifname, _ := strings.Cut(pod, "/")
	return short(container) + "/" + ifname
}

// traceEnd is an address, with its port where the protocol has ports and the packet shows them.
func traceEnd(e maps.Event, a netip.AddrPort) string {
	addr := a.Addr()
	if !addr.IsValid() { // a zero one
		addr = netip.IPv6Unspecified()
		if e.Ethertype != unix.ETH_P_IPV6 {
			addr = netip.IPv4Unspecified()
		}
	}
	if hasPorts(e.Tuple.Proto) && a.Port() != 0 {
		return netip.AddrPortFrom(addr, a.Port()).String()
	}
	return addr.String()
}

func hasPorts(proto uint8) bool {
	return proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP || proto == unix.IPPROTO_SCTP
}

func isICMP(proto uint8) bool { return proto == unix.IPPROTO_ICMP || proto == unix.IPPROTO_ICMPV6 }

func etherName(e maps.Event) string {
	if e.Ethertype == unix.ETH_P_ARP {
		return "arp"
	}
	return maps.ProtoName(e.Tuple.Proto)
}

// tcpFlags spells them as tcpdump does.
func tcpFlags(e maps.Event) string {
	if e.Tuple.Proto != unix.IPPROTO_TCP || e.Piece == maps.LaterFragment {
		return ""
	}
	var s string
	for i, name := range []string{"F", "S", "R", "P", ".", "U"} {
		if e.TCPFlags>>i&1 != 0 {
			s += name
		}
	}
	return cmp.Or(s, "none")
}

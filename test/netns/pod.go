// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// PortMapping is one row of runtimeConfig.portMappings.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Bandwidth is runtimeConfig.bandwidth, in bit a second and bit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// PodSpec says what ADD is asked for.
type PodSpec struct {
	Name      string         // of the namespace, and so of its servers; also the container id
	NS        *NS            // default: a new one
	IfName    string         // default eth0
	Families  []int          // default both
	Ports     []PortMapping  // runtimeConfig
	Bandwidth *Bandwidth     // runtimeConfig
	Conf      map[string]any // over the node's configuration; a nil value removes a key
}

// Pod is an attachment that ADD made.
type Pod struct {
	*NS
	Node   *Node
	ID     string
	IfName string
	Result Result
	V4, V6 netip.Addr
	Host   Interface // the node's side
	Inside Interface // the pod's side

	HostPort uint16 // the first that was asked for

	conf   map[string]any
	before []map[string]any // the plugins that are in the list before culvert
	raw    json.RawMessage  // the result as it came
	gone   sync.Once
}

// Both maps one port of the node to one of the pod, for TCP and UDP.
func Both(hostPort, port int, hostIP ...string) []PortMapping {
	var ps []PortMapping
	for _, proto := range []string{"tcp", "udp"} {
		ps = append(ps, PortMapping{hostPort, port, proto, strings.Join(hostIP, "")})
	}
	return ps
}

// Add makes a pod, which is deleted when the test ends.
func (n *Node) Add(tb testing.TB, s PodSpec) *Pod {
	tb.Helper()
	if s.NS == nil {
		s.NS = New(tb, s.Name)
	}
	p, err := n.TryAdd(s)
	if err != nil {
		tb.Fatalf("ADD %s: %v", s.Name, err)
	}
	tb.Cleanup(func() { p.Del(tb) })
	return p
}

// TryAdd runs ADD for a pod whose namespace is there already. After an error
// there is nothing to delete.
func (n *Node) TryAdd(s PodSpec) (*Pod, error) { return n.TryAddEnv(s, nil) }

// TryAddEnv is TryAdd with more environment, or other.
func (n *Node) TryAddEnv(s PodSpec, extra map[string]string) (*Pod, error) {
	p := n.attachment(s)
	env := p.env()
	maps.Copy(env, extra)
	out, err := n.ExecList(env, p.list())
	if err != nil {
		return nil, errors.Join(err, p.delBefore(nil))
	}
	if err := json.Unmarshal(out, &p.Result); err != nil {
		return nil, fmt.Errorf("decode result %q: %w", out, err)
	}
	p.raw = out
	p.read()
	return p, nil
}

// attachment is the pod as the runtime knows it before ADD.
func (n *Node) attachment(s PodSpec) *Pod {
	p := &Pod{NS: s.NS, Node: n, ID: s.Name, IfName: s.IfName, conf: n.Conf(s.Families...)}
	if p.IfName == "" {
		p.IfName = "eth0"
	}
	runtime := map[string]any{}
	if len(s.Ports) > 0 {
		p.HostPort = uint16(s.Ports[0].HostPort)
		runtime["portMappings"] = s.Ports
	}
	if s.Bandwidth != nil {
		runtime["bandwidth"] = s.Bandwidth
	}
	if len(runtime) > 0 {
		p.conf["runtimeConfig"] = runtime
	}
	maps.Copy(p.conf, s.Conf)
	maps.DeleteFunc(p.conf, func(_ string, v any) bool { return v == nil })
	if n.Chain != nil {
		p.before = n.Chain(n, p.conf["ipam"])
		delete(p.conf, "ipam")
	}
	return p
}

func (p *Pod) env() map[string]string {
	return map[string]string{"CNI_CONTAINERID": p.ID, "CNI_NETNS": p.Path(), "CNI_IFNAME": p.IfName}
}

// read takes the addresses and interfaces out of the result.
func (p *Pod) read() {
	for _, ip := range p.Result.IPs {
		if a := ip.Address.Addr(); a.Is4() && !p.V4.IsValid() {
			p.V4 = a
		} else if a.Is6() && !p.V6.IsValid() {
			p.V6 = a
		}
	}
	for _, i := range p.Result.Interfaces {
		if i.Sandbox == "" {
			p.Host = i
		} else {
			p.Inside = i
		}
	}
	if p.before != nil && p.Inside.MAC == "" {
		p.Inside = told(p.NS, p.IfName, p.Path())
	}
	if p.before != nil && p.Host.MAC == "" {
		p.Host = told(p.Node.NS, p.Host.Name, "")
	}
}

// Addr is the pod's address in family 4 or 6.
func (p *Pod) Addr(family int) netip.Addr { return pick(family, p.V4, p.V6) }

// Check runs CHECK with the result of ADD.
func (p *Pod) Check() error {
	for _, conf := range p.list() {
		if _, err := p.Node.Exec("CHECK", p.env(), withResult(conf, p.raw)); err != nil {
			return err
		}
	}
	return nil
}

// TryDel runs DEL, as often as it is called; extra overrides the environment.
func (p *Pod) TryDel(extra map[string]string) error {
	env := p.env()
	maps.Copy(env, extra)
	_, err := p.Node.Exec("DEL", env, withResult(p.conf, p.raw))
	return errors.Join(err, p.delBefore(extra))
}

// TryDelBare is TryDel without prevResult and runtimeConfig.
func (p *Pod) TryDelBare() error {
	conf := maps.Clone(p.conf)
	delete(conf, "runtimeConfig")
	_, err := p.Node.Exec("DEL", p.env(), conf)
	return errors.Join(err, p.delBefore(nil))
}

// Del runs DEL once.
func (p *Pod) Del(tb testing.TB) {
	tb.Helper()
	p.gone.Do(func() {
		if p.Node.BeforeDel != nil {
			p.Node.BeforeDel(tb, p)
		}
		if err := p.TryDel(nil); err != nil {
			tb.Errorf("DEL %s: %v", p.ID, err)
		}
	})
}

// Vanish closes the pod's namespace without telling the plugin.
func (p *Pod) Vanish() {
	p.gone.Do(func() {})
	p.Close()
}

// Code is the CNI error code of err, 0 if it is none.
func Code(err error) uint {
	var ce *CNIError
	if errors.As(err, &ce) {
		return ce.Code
	}
	return 0
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// get asks an agent, of whom nobody but its node can.
func (a *agents) get(i int, path string) (code int, body string, err error) {
	dial := func(_ context.Context, network, at string) (c net.Conn, err error) {
		err = a.Nodes[i].Do(func() (err error) { c, err = net.DialTimeout(network, at, netns.Patience); return err })
		return c, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: netns.Patience}
	r, err := client.Get("http://127.0.0.1:9377" + path)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// answers fails unless an agent says that all is well.
func (a *agents) answers(i int, path string) error {
	code, body, err := a.get(i, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d: %s", code, body)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", a.Nodes[i].Name, path, err)
	}
	return nil
}

func (a *agents) ready(t *testing.T) {
	t.Helper()
	for i := range a.Nodes {
		eventually(t, func() error { return a.answers(i, "/readyz") })
	}
}

// conf is what the runtime calls the plugin with, by the configuration that culvertd wrote.
func (a *agents) conf(i int) (map[string]any, error) {
	text, err := os.ReadFile(filepath.Join(a.confs[i], "10-culvert.conflist"))
	if err != nil {
		return nil, err
	}
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Plugins) != 1 {
		return nil, fmt.Errorf("%s: %w", text, errors.Join(err, errors.ErrUnsupported))
	}
	list.Plugins[0]["cniVersion"], list.Plugins[0]["name"] = list.CNIVersion, list.Name
	return list.Plugins[0], nil
}

// gives waits until a node's pods get addresses of these ranges and of no others, and other nodes
// lead there.
func (a *agents) gives(t *testing.T, i int, ranges ...netip.Prefix) {
	t.Helper()
	want := ""
	for _, r := range ranges {
		want += fmt.Sprintf("[map[subnet:%s]]", r)
	}
	eventually(t, func() error {
		conf, err := a.conf(i)
		if err != nil {
			return err
		}
		ipam := conf["ipam"].(map[string]any)
		if got := strings.ReplaceAll(fmt.Sprint(ipam["ranges"]), "] [", "]["); got != "["+want+"]" {
			return fmt.Errorf("%s gives addresses of %s, want %s", a.Nodes[i].Name, got, want)
		}
		return a.led(i, ranges)
	})
}

// led fails unless the other nodes send what is for these ranges to node i.
func (a *agents) led(i int, ranges []netip.Prefix) error {
	for _, n := range a.Nodes {
		if n == a.Nodes[i] {
			continue
		}
		set, err := maps.Open(filepath.Join(n.PinPath, "v1", "maps"))
		if err != nil {
			return err // its agent has not loaded them yet
		}
		found := 0
		for r, err := range set.Remotes.All() {
			if err == nil && slices.Contains(ranges, r.Prefix) && slices.Contains(a.Nodes[i].Addrs(), r.Endpoint) {
				found++
			}
		}
		set.Close()
		if found != len(ranges) {
			return fmt.Errorf("%s does not lead to %s", n.Name, a.Nodes[i].Name)
		}
	}
	return nil
}

// during has the pods that stay ask each other all the time: not one datagram may be lost, and no
// connection broken.
func (a *agents) during(t *testing.T, what func()) {
	t.Helper()
	tr := newOngoing()
	defer func() {
		if tr.end(t); tr.questions.Load() == 0 || tr.sent() == 0 {
			t.Error("nobody asked anything")
		}
	}()
	for i, from := range a.pods {
		for j, to := range a.pods {
			for _, v := range families {
				w := way{fmt.Sprintf("p%d to p%d, IPv%d", i, j, v), from.NS, netip.AddrPortFrom(to.Addr(v), 7)}
				if i != j {
					tr.datagrams(t, w, 20*time.Millisecond)
				}
				if i < j {
					tr.stream(t, w)
				}
			}
		}
	}
	what()
}

// alone adds a pod on each node, has all reach each other, and deletes them with the test.
func (a *agents) alone(t *testing.T, name string) (added []*netns.Pod) {
	t.Helper()
	for i := range a.Nodes {
		added = append(added, a.serve(t, i, fmt.Sprintf("%s%d", name, i)))
	}
	a.all(t, small, append(added, a.pods...)...)
	return added
}

// all: each pod and each node reaches each pod on another node, who sees it as it is.
func (a *agents) all(t *testing.T, protos []string, pods ...*netns.Pod) {
	t.Helper()
	for _, to := range pods {
		for _, v := range families {
			for _, proto := range protos {
				for _, from := range pods {
					if from.Node != to.Node {
						ask(t, from.NS, call(proto, to.Addr(v), 80), want{server: to.Name, remote: only(from.Addr(v))})
					}
				}
			}
			for _, n := range a.Nodes {
				if n != to.Node {
					ask(t, n.NS, call("udp", to.Addr(v), 80), want{server: to.Name})
				}
			}
		}
	}
}

// block is an IPBlock, as far as it is looked at.
type block struct {
	Metadata struct{ Name string }
	Spec     struct{ Node string }
	Status   struct{ Allocations []struct{ Address string } }
}

// blocks are those that the API server has.
func (a *agents) blocks(t *testing.T) map[string]block {
	t.Helper()
	now := map[string]block{}
	a.api.Each("ipblocks", func(was, is []byte) {
		var before, b block
		if was != nil {
			if err := json.Unmarshal(was, &before); err != nil {
				t.Fatal(err)
			}
			delete(now, before.Metadata.Name)
		}
		if is != nil {
			if err := json.Unmarshal(is, &b); err != nil {
				t.Fatal(err)
			}
			now[b.Metadata.Name] = b
		}
	})
	return now
}

// reported fails unless the blocks tell of these pods' addresses.
func (a *agents) reported(t *testing.T, pods ...*netns.Pod) error {
	at := map[string]string{}
	for _, b := range a.blocks(t) {
		for _, l := range b.Status.Allocations {
			at[l.Address] = b.Spec.Node
		}
	}
	for _, p := range pods {
		if at[p.V4.String()] != p.Node.Name || at[p.V6.String()] != p.Node.Name {
			return fmt.Errorf("%s of %s, %s and %s, is not told of: %v", p.Name, p.Node.Name, p.V4, p.V6, at)
		}
	}
	return nil
}

// told fails unless a Node's condition says that its network is there.
func (a *agents) told(name string) error {
	var last []byte
	a.api.Each("nodes", func(_, is []byte) {
		if strings.Contains(string(is), fmt.Sprintf(`"name":%q`, name)) {
			last = is
		}
	})
	if !strings.Contains(string(last), `"reason":"CulvertIsUp"`) {
		return fmt.Errorf("Node %s: %s", name, last)
	}
	return nil
}

func (a *agents) remotes(t *testing.T, n *netns.Node) string {
	t.Helper()
	var s strings.Builder
	for _, r := range rows(t, tables(t, n).Remotes.All()) {
		fmt.Fprintf(&s, "%+v\n", r)
	}
	return s.String()
}

// withoutPods leaves out the lines of pods' devices.
func withoutPods(all string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(all, "\n"), func(l string) bool { return strings.Contains(l, " cv") || strings.Contains(l, ": cv") }), "\n")
}

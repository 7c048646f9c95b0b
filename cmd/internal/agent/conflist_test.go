// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newAgent is an agent of a node that all works on.
func newAgent(t testing.TB) (*Agent, *FakeCluster, *FakeNode, *FakeTeller) {
	cluster, node, teller := &FakeCluster{Now: n1State, Known: true}, &FakeNode{Links: n1Uplinks, Fail: map[string]error{}}, &FakeTeller{}
	return &Agent{
		Config:  Config{Tunnel: TunnelAuto, ConfDir: t.TempDir(), Masquerade: true, CNIVersion: "1.1.0", PinPath: "/sys/fs/bpf/culvert", ClusterCIDR: prefixes("10.0.0.0/8")},
		Cluster: cluster, Node: node, Teller: teller, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}, cluster, node, teller
}

func (a *Agent) path() string { return filepath.Join(a.ConfDir, ConflistName) }

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const wantConflist = `{
  "cniVersion": "1.1.0",
  "name": "culvert",
  "writtenBy": "culvertd: changes of this file are lost",
  "plugins": [
    {
      "type": "culvert",
      "capabilities": {
        "bandwidth": true,
        "io.kubernetes.cri.pod-annotations": true,
        "portMappings": true
      },
      "ipMasq": true,
      "nonMasqueradeCIDRs": [
        "10.0.0.0/8",
        "10.1.1.0/24",
        "10.1.7.0/24",
        "10.2.0.0/26",
        "fd00:1:1::/64"
      ],
      "mtu": 1450,
      "pinPath": "/sys/fs/bpf/culvert",
      "ipam": {
        "type": "culvert-ipam",
        "ranges": [
          [
            {
              "subnet": "10.1.1.0/24"
            }
          ],
          [
            {
              "subnet": "fd00:1:1::/64"
            }
          ]
        ],
        "routes": [
          {
            "dst": "0.0.0.0/0"
          },
          {
            "dst": "::/0"
          }
        ],
        "reserved": [
          "10.1.1.9/32"
        ],
        "pools": {
          "blue": {
            "ranges": [
              [
                {
                  "subnet": "10.2.0.0/26"
                }
              ]
            ]
          }
        },
        "namespacePools": {
          "shop": [
            "blue"
          ]
        }
      }
    }
  ]
}
`

func TestConflist(t *testing.T) {
	a, cluster, _, _ := newAgent(t)
	cluster.Now.Draining = prefixes("10.1.7.0/24 10.1.6.5/32")
	cluster.Now.Reserved = prefixes("10.1.1.9/32")
	cluster.Now.Pools = map[string][]netip.Prefix{"blue": prefixes("10.2.0.0/26")}
	cluster.Now.Namespaces = map[string][]string{"shop": {"blue"}}
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a.path()); got != wantConflist {
		t.Errorf("got:\n%s", got)
	}
	var plugin map[string]any
	if err := json.Unmarshal(a.conf, &plugin); err != nil || plugin["name"] != "culvert" || plugin["cniVersion"] != "1.1.0" || plugin["type"] != "culvert" {
		t.Errorf("the plugin's own: %s", a.conf)
	}
}

// The file is written when it is to say something else, and nothing else is left beside it.
func TestConflistRewritten(t *testing.T) {
	a, cluster, _, _ := newAgent(t)
	inode := func() uint64 { return inodeOf(t, a.path()) }
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := inode()
	left := filepath.Join(a.ConfDir, "."+ConflistName+".123.tmp") // of a run that was killed
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context()); err != nil || inode() != first {
		t.Errorf("an unchanged configuration was written: %v", err)
	}
	cluster.Now.Ranges = prefixes("10.1.5.0/24")
	if err := a.Sync(t.Context()); err != nil || inode() == first || !strings.Contains(read(t, a.path()), "10.1.5.0/24") {
		t.Errorf("another range was not written: %v", err)
	}
	if err := os.Remove(a.path()); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(a.ConfDir); err != nil || len(list) != 1 || list[0].Name() != ConflistName {
		t.Errorf("left in the directory: %v, %v", list, err)
	}
}

func TestConflistForeign(t *testing.T) {
	a, _, _, teller := newAgent(t)
	const theirs = `{"name":"mine","plugins":[]}`
	if err := os.WriteFile(a.path(), []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "culvertd has not written") {
			t.Errorf("a foreign file: %v", err)
		}
	}
	if read(t, a.path()) != theirs {
		t.Error("it was written over")
	}
	if got := strings.Join(teller.Said, ","); got != "Warning CulvertConflistFailed" {
		t.Errorf("told: %s", got)
	}
	if len(teller.Why) == 0 || teller.Why[len(teller.Why)-1] == nil {
		t.Error("the node counts as up")
	}
}

func TestForget(t *testing.T) {
	a, _, _, _ := newAgent(t)
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if removed, err := Forget(a.ConfDir); err != nil || removed != want {
			t.Errorf("removed %v, %v; want %v", removed, err, want)
		}
	}
	if err := os.WriteFile(a.path(), []byte(`{"name":"mine"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := Forget(a.ConfDir); err != nil || removed {
		t.Errorf("a foreign file: %v, %v", removed, err)
	}
	read(t, a.path())
}

func TestConflistShadowed(t *testing.T) {
	a, _, _, _ := newAgent(t)
	if err := os.WriteFile(filepath.Join(a.ConfDir, "05-other.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "05-other.conf") {
		t.Errorf("another one comes first: %v", err)
	}
	read(t, a.path())
}

// Pods may start from the moment that the file is there: so nothing may be missing by then.
func TestConflistLast(t *testing.T) {
	for _, fail := range []string{"EnsureTunnel", "SyncRemotes", "SyncRoutes"} {
		a, _, node, _ := newAgent(t)
		node.Fail[fail] = os.ErrPermission
		if err := a.Sync(t.Context()); err == nil {
			t.Errorf("%s failed and no error came", fail)
		}
		if _, err := os.Stat(a.path()); err == nil {
			t.Errorf("written although %s failed", fail)
		}
		delete(node.Fail, fail)
		if err := a.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		read(t, a.path())
		node.Fail[fail] = os.ErrPermission
		a.Masquerade = false
		if err := a.Sync(t.Context()); err == nil || !strings.Contains(read(t, a.path()), `"ipMasq": false`) {
			t.Errorf("later %s keeps changes away from pods: %v", fail, err)
		}
	}
}

// Without a range no file is made; one that is there gives no address of a lost range.
func TestConflistNoRange(t *testing.T) {
	a, cluster, _, _ := newAgent(t)
	state := cluster.Now
	cluster.Now.Ranges = nil
	if err := a.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "no range") {
		t.Errorf("no range: %v", err)
	}
	if _, err := os.Stat(a.path()); err == nil {
		t.Error("written without a range")
	}
	cluster.Now = state
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.Now.Ranges = nil
	if err := a.Sync(t.Context()); err == nil || !strings.Contains(read(t, a.path()), `"ranges": []`) {
		t.Errorf("a lost range is still given: %v", err)
	}
}

// Nothing is touched as long as nothing is known; what an earlier run wrote is good.
func TestConflistUnknownCluster(t *testing.T) {
	a, cluster, node, teller := newAgent(t)
	cluster.Known = false
	if err := a.Sync(t.Context()); err == nil || a.Report().Ready || len(node.Calls) != 0 || len(teller.Said)+len(teller.Why) != 0 {
		t.Errorf("nothing is known, and %v, %v, %v", err, node.Calls, teller)
	}
	cluster.Known = true
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.Known = false
	b := &Agent{Config: a.Config, Cluster: cluster, Node: &FakeNode{}, Teller: teller, Log: a.Log, Now: a.Now}
	if err := b.Sync(t.Context()); err == nil || !b.Report().Ready {
		t.Errorf("after a restart without API server: %v, %v", err, b.Report())
	}
}

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-cni/culvert/maps"
)

// One step that fails keeps none of the others, is told once, and so is its end.
func TestSyncFaults(t *testing.T) {
	for _, fail := range []string{"Forward", "EnsureTunnel", "SyncRemotes", "SyncRoutes", "Ready"} {
		t.Run(fail, func(t *testing.T) {
			a, _, node, teller := newAgent(t)
			if err := a.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := slices.Clone(node.Calls)
			node.Calls, node.Fail[fail] = nil, errors.New("no such luck")
			for range 3 {
				if err := a.Sync(t.Context()); err == nil {
					t.Fatal("no error")
				}
			}
			if !slices.Equal(node.Calls[:len(all)], all) {
				t.Errorf("called %v, without the fault %v", node.Calls, all)
			}
			if len(node.Routes) == 0 || len(node.Remotes) == 0 {
				t.Error("what could be done was not")
			}
			if len(teller.Said) != 1 || !strings.HasPrefix(teller.Said[0], "Warning ") {
				t.Errorf("told: %v", teller.Said)
			}
			if r := a.Report(); len(r.Errors) != 1 || len(r.Missing()) != 1 || r.Ready != (fail != "Ready") {
				t.Errorf("report: %+v", r)
			}
			delete(node.Fail, fail)
			if err := a.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(teller.Said) != 2 || !strings.HasPrefix(teller.Said[1], "Normal ") {
				t.Errorf("told: %v", teller.Said)
			}
			if missing := a.Report().Missing(); len(missing) != 0 {
				t.Errorf("missing: %v", missing)
			}
		})
	}
}

// The condition is written when it changes or the Node is made anew, and looked at now and then.
func TestSyncCondition(t *testing.T) {
	a, cluster, node, teller := newAgent(t)
	now := time.Now()
	a.Now = func() time.Time { return now }
	sync := func() { _ = a.Sync(t.Context()) }
	sync()
	sync()
	node.Fail["Ready"] = errors.New("the pool is full")
	sync()
	sync()
	delete(node.Fail, "Ready")
	sync()
	if len(teller.Why) != 3 || teller.Why[0] != nil || teller.Why[1] == nil || teller.Why[1].Error() != "the pool is full" || teller.Why[2] != nil {
		t.Errorf("written: %v", teller.Why)
	}
	now = now.Add(conditionAge)
	sync()
	if len(teller.Why) != 4 {
		t.Errorf("not looked at again: %v", teller.Why)
	}
	cluster.Now.UID = "another"
	sync()
	sync()
	if len(teller.Why) != 5 {
		t.Errorf("of a Node made anew: %v", teller.Why)
	}
}

// A tunnel that is there stays, with the right addresses, when no peer needs it any more; none
// is made for nobody.
func TestSyncTunnel(t *testing.T) {
	a, cluster, node, _ := newAgent(t)
	remote := cluster.Now.Remote
	cluster.Now.Remote = remote[:2]
	if err := a.Sync(t.Context()); err != nil || node.Tunnel != nil {
		t.Fatalf("made for nobody: %v, %v", node.Tunnel, err)
	}
	cluster.Now.Remote = remote
	if err := a.Sync(t.Context()); err != nil || node.Tunnel == nil || len(node.Remotes) == 0 {
		t.Fatalf("for a peer: %v, %v", node.Remotes, err)
	}
	by := map[maps.RemoteKind]int{maps.RemoteTunnel: 7, maps.RemoteDirect: 5, maps.RemoteNode: 0}
	for _, r := range node.Remotes {
		if r.Ifindex != by[r.Kind] {
			t.Errorf("by device %d, want %d: %v", r.Ifindex, by[r.Kind], r)
		}
	}
	cluster.Now.Remote, cluster.Now.Ranges = remote[:2], prefixes("10.1.5.0/24")
	if err := a.Sync(t.Context()); err != nil || !slices.Equal(node.Tunnel.Addrs, addrs("10.1.5.0")) {
		t.Fatalf("no longer needed, and not kept right: %v, %v", node.Tunnel, err)
	}
}

// Without its device the tunnel's routes are left out, and everything else is done.
func TestSyncNoTunnel(t *testing.T) {
	a, _, node, _ := newAgent(t)
	node.Fail["EnsureTunnel"] = errors.New("no such luck")
	if err := a.Sync(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if got := lines(node.Routes, routeLine); !strings.Contains(got, "via 192.0.2.2") || strings.Contains(got, "tunnel") {
		t.Errorf("routes:\n%s", got)
	}
}

// A change is followed at once, an error is tried again later and later, and without either the
// node is looked at every half minute.
func TestRunTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, cluster, node, _ := newAgent(t)
		cluster.Ping = make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		start := time.Now()
		var at []time.Duration
		node.Fail["Forward"] = errors.New("no such luck")
		go a.Run(ctx)
		looks := func() int {
			n := 0
			for _, c := range node.Calls {
				if c == "Forward" {
					n++
				}
			}
			return n
		}
		for len(at) < 7 {
			synctest.Wait()
			if looks() > len(at) {
				at = append(at, time.Since(start))
			}
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		}
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 61 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		before := looks()
		cluster.Ping <- struct{}{}
		synctest.Wait()
		if looks() != before+1 {
			t.Error("a change was not followed")
		}
	})
}

func TestHandler(t *testing.T) {
	a, _, node, _ := newAgent(t)
	now := time.Now()
	a.Now = func() time.Time { return now }
	h := a.Handler(http.NotFoundHandler())
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("not healthy before the first look: %d", code)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || text == "" {
		t.Errorf("ready before the first look: %d %s", code, text)
	}
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, text := get("/readyz"); code != http.StatusOK {
		t.Errorf("not ready: %d %s", code, text)
	}
	node.Fail["SyncRoutes"], node.Fail["Ready"] = errors.New("no way"), errors.New("full")
	_ = a.Sync(t.Context())
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || text != "routes: no way\nready: full\n" {
		t.Errorf("what is missing: %d %q", code, text)
	}
	now = now.Add(hung + time.Second)
	if code, _ := get("/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("stuck, and healthy: %d", code)
	}
}

func TestInstall(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range Programs {
		if err := os.WriteFile(filepath.Join(from, name), []byte("new "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "culvert"), []byte("old"), 0o700); err != nil {
		t.Fatal(err)
	}
	running, err := os.Open(filepath.Join(to, "culvert"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	var wrote []string
	install := func() {
		t.Helper()
		wrote = nil
		if err := Install(from, to, func(path string) { wrote = append(wrote, filepath.Base(path)) }); err != nil {
			t.Fatal(err)
		}
	}
	install()
	if !slices.Equal(wrote, Programs) {
		t.Errorf("wrote %v", wrote)
	}
	for _, name := range Programs {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode().Perm() != 0o755 || read(t, filepath.Join(to, name)) != "new "+name {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	old := make([]byte, 3)
	if _, err := running.ReadAt(old, 0); err != nil || string(old) != "old" {
		t.Errorf("the file of a run that goes on changed to %q, %v", old, err)
	}
	if install(); len(wrote) != 0 {
		t.Errorf("wrote %v again", wrote)
	}
	if err := os.Remove(filepath.Join(from, "culvert-ipam")); err != nil {
		t.Fatal(err)
	}
	if err := Install(from, to, func(string) {}); err == nil {
		t.Error("a program that is not there was installed")
	}
}

// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

// L7: bpffs is unmounted, or pins are deleted by hand, under traffic. What goes between the
// node's pods goes on; what needs the links on uplinks does until these go. STATUS or CHECK
// tells, DEL works; the next GC, or ADD of a pod with hostPorts, restores everything, with
// the rows and the flows of the pods that run.
func TestPrivilegedL7PinsLost(t *testing.T) {
	verbs := []string{"ADD", "GC"}
	for i, lost := range []struct {
		what         string
		links, marks bool // go too
	}{
		{"mount", true, true}, {"v1/maps", false, false}, {"v1/maps/hostports", false, false},
		{"v1/links", true, false}, {"v1/progs", false, false}, {"v1", true, true}, {"v1/maps/pods", false, false},
	} {
		for j, heal := range verbs {
			if full() || i < 4 && i != 2 && (i+j)%2 == 1 {
				t.Run(strings.ReplaceAll(lost.what, "/", "_")+"/"+heal, func(t *testing.T) { lose(t, lost.what, lost.links, lost.marks, heal) })
			}
		}
	}
}

func lose(t *testing.T, what string, links, marks bool, heal string) {
	b := newBed(t)
	server, client, goes := b.add("server", 8081), b.add("client", 0), b.add("goes", 8083)
	outside := b.open(b.net.Outside().NS, b.node.Uplinks[0].V4, 8081)
	inside := b.open(client.NS, server.V4, port)
	tcx, _ := filepath.Glob(filepath.Join(b.node.PinPath, "v1/links/uplink_*_in"))
	links = links && len(tcx) > 0
	if err := remove(b.node.PinPath, what); err != nil {
		t.Fatal(err)
	}
	// At once, and with nothing mended.
	_, inFlow := inside.Ask()
	_, byPort := client.Ask(netns.Call{Proto: "udp", To: netip.AddrPortFrom(b.node.Uplinks[0].V6, 8081)})
	if err := errors.Join(inFlow, byPort); err != nil {
		t.Errorf("between pods: %v", err)
	}
	if !links { // the node itself would reset the connection
		if _, err := outside.Ask(); err != nil {
			t.Errorf("from outside: %v", err)
		}
	}
	conf := b.node.Conf()
	_, status := b.node.Exec("STATUS", nil, conf)
	if check := server.Check(); status == nil && check == nil && what != "v1/progs" && (what != "v1/links" || links) { // nobody but ADD misses these
		t.Error("neither STATUS nor CHECK tells")
	} else {
		t.Logf("STATUS: %v; CHECK: %v", status, check)
	}
	if err := goes.TryDel(nil); err != nil {
		t.Errorf("DEL: %v", err)
	}
	var late *netns.Pod
	valid := []*netns.Pod{server, client}
	if heal == "ADD" {
		late = b.add("late", 8082)
		valid = append(valid, late)
	} else if err := b.collect(valid...); err != nil {
		t.Fatal(err)
	}
	if _, err := b.node.Exec("STATUS", nil, conf); err != nil {
		t.Errorf("STATUS after %s: %v", heal, err)
	}
	if err := b.works(server); err != nil {
		t.Errorf("after %s: %v", heal, err)
	}
	for name, f := range map[string]*netns.Flow{"from outside": outside, "between pods": inside} {
		if err := netns.Poll(func() error { _, err := f.Ask(); return err }); err != nil {
			t.Errorf("the open connection %s after %s: %v", name, heal, err)
		}
	}
	var errs []error
	for _, p := range valid {
		errs = append(errs, p.Check(), p.TryDel(nil))
	}
	if marks { // of what was set before: it stays set
		for _, name := range []string{"net/ipv4/conf/lo/accept_local", "net/ipv4/conf/lo/route_localnet"} {
			delete(b.base, "sysctl: "+name+"=0")
			b.base["sysctl: "+name+"=1"] = true
		}
		delete(b.base, "pin: /v1/sysctls")
	}
	if err := errors.Join(append(errs, b.collect(), b.leases(), b.same("in the end"))...); err != nil {
		t.Error(err)
	}
}

// remove takes a part of what is under pinPath away.
func remove(pinPath, what string) error {
	if what != "mount" {
		return os.RemoveAll(filepath.Join(pinPath, what))
	}
	if err := unix.Unmount(bpffs, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount bpffs: %w", err)
	}
	return nil
}

func (b *bed) open(from *netns.NS, to netip.Addr, port uint16) *netns.Flow {
	b.Helper()
	f, err := from.Open(netns.Call{Proto: "tcp", To: netip.AddrPortFrom(to, port)})
	if err == nil {
		_, err = f.Ask()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	return f
}

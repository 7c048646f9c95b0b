// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	culvert "github.com/culvert-cni/culvert/maps"
	"github.com/culvert-cni/culvert/test/netns"
)

// L1: an ADD that finds a table full says which, by error 11, and is undone; pods that run
// keep running, and the next ADD after one of them went works.
func TestPrivilegedL1FullTable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := b.add("pod", 8081)
	set, err := culvert.Open(filepath.Join(b.node.PinPath, "v1", "maps"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	const dead = 1 // a generation that no pod has
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, tc := range []struct {
		table string
		put   func(i int) error
		drop  func(i int) error
	}{
		{"pods", func(i int) error {
			return set.Pods.Put(culvert.Pod{Addr: number(i), Generation: dead, Ifindex: 1 << 20, MAC: mac, HostMAC: mac})
		}, func(i int) error { return set.Pods.Delete(number(i)) }},
		{"ifaces", func(i int) error {
			return set.Ifaces.Put(culvert.Iface{Ifindex: 1<<20 + i, Generation: dead, HostIfName: "x", Owner: culvert.Owner{Network: "other"}})
		}, func(i int) error { return set.Ifaces.Delete(1<<20 + i) }},
		{"hostports", func(i int) error {
			return set.Hostports.Claim(culvert.Hostport{Addr: number(i / 60000), Port: uint16(1 + i%60000), Proto: 6, PodPort: 1, Generation: dead})
		}, func(i int) error {
			return set.Hostports.Delete(culvert.HostportKey{Addr: number(i / 60000), Port: uint16(1 + i%60000), Proto: 6})
		}},
		{"limits", func(i int) error {
			return set.Limits.Put(culvert.Limit{Ifindex: 1<<20 + i, Direction: culvert.Ingress, Rate: 1e6, Burst: 1e6})
		}, func(i int) error { return set.Limits.Delete(1<<20+i, culvert.Ingress) }},
	} {
		t.Run(tc.table, func(t *testing.T) {
			before := look(t, b.node)
			n, err := 0, error(nil)
			for ; err == nil; n++ {
				err = tc.put(n)
			}
			if !errors.Is(err, culvert.ErrFull) {
				t.Fatalf("fill %s: %v after %d rows", tc.table, err, n)
			}
			err = b.tryAdd("late", 8082)
			if netns.Code(err) != 11 || !strings.Contains(err.Error(), tc.table+" has room for") {
				t.Errorf("ADD: want error 11 that names %s, got %v", tc.table, err)
			}
			if err := b.works(pod); err != nil {
				t.Errorf("a pod that runs: %v", err)
			}
			for i := range n {
				if err := tc.drop(i); err != nil {
					t.Fatal(err)
				}
			}
			if left := before.left(look(t, b.node)); len(left) > 0 {
				t.Errorf("after the error:\n\t%s", strings.Join(left, "\n\t"))
			}
			late := b.add("late", 8082)
			if err := errors.Join(b.works(late), late.TryDel(nil)); err != nil {
				t.Errorf("the next ADD: %v", err)
			}
		})
	}
	if err := errors.Join(pod.TryDel(nil), b.collect(), b.same("in the end")); err != nil {
		t.Error(err)
	}
}

// number gives a different address for each i.
func number(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{100, 64 + byte(i>>16), byte(i >> 8), byte(i)})
}

// L1: neither a full disk nor one that became read-only keeps a pod from starting, running
// or going because of the log; a path that cannot be is error 7 to ADD, and none to DEL.
func TestPrivilegedL1Log(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	dir := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.Mkdir(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,nr_inodes=3")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	b := newBed(t)
	fill := func() error {
		err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 64<<10), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("fill disk: %w", err)
		}
		return nil
	}
	for _, tc := range []struct {
		name, file string
		prepare    func() error
		code       uint // of ADD
	}{
		{"Full", "log", func() error { return errors.Join(os.WriteFile(filepath.Join(dir, "log"), nil, 0o600), fill()) }, 0},
		{"FullOfFiles", "other", func() error { return nil }, 0},
		{"ReadOnly", "log", func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") }, 0},
		{"NoDirectory", "none/log", func() error { return nil }, 7},
		{"Directory", "", func() error { return nil }, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.prepare(); err != nil {
				t.Fatal(err)
			}
			s := b.specOn("pod", 8081)
			s.Conf["logFile"] = filepath.Join(dir, tc.file)
			s.Conf["logLevel"] = "debug"
			p, err := b.node.TryAdd(s)
			if netns.Code(err) != tc.code || (err == nil) != (tc.code == 0) {
				t.Errorf("ADD: want code %d, got %v", tc.code, err)
			}
			if err != nil {
				p = b.node.Unfinished(s)
			} else if err := b.works(p); err != nil {
				t.Error(err)
			}
			if err := errors.Join(p.TryDelBare(), b.same("in the end")); err != nil {
				t.Error(err)
			}
		})
	}
}

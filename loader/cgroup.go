// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// from_socket is attached to the root of the cgroups, beside other people's programs. It
// is about connections from one of the node's addresses to 127.0.0.1 that a firewall
// would drop: where there are no cgroups v2 these are lost, and nothing else.

// attachSockets makes a pinned link and tells the program which sockets are the node's.
// Call it under the lock. It is idempotent.
func (d *Datapath) attachSockets() error {
	if err := d.nameNetns(); err != nil {
		return err
	}
	h := socketHook()
	pin := d.linkPin(h, loIfindex)
	if exists(pin) {
		return nil
	}
	root, err := cgroupMount([]string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, "/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	if root == "" {
		d.opts.Log.Warn("no cgroups v2 are mounted: a firewall may keep the node's own addresses from hostPorts on 127.0.0.1")
		return nil
	}
	prog, err := d.program(h)
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupInet4Connect, Program: prog})
	if err != nil {
		return fmt.Errorf("attach %s to cgroup %s: %w", h.program, root, err)
	}
	defer l.Close() // unpinned, this detaches
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin link of %s: %w", h.program, err)
	}
	return nil
}

// DetachSockets detaches from_socket: call it when no hostPort is open on loopback. It is
// no error that it is not attached.
func (d *Datapath) DetachSockets() error { return detachLink(d.linkPin(socketHook(), loIfindex)) }

// SocketsAttached says whether from_socket is attached.
func (d *Datapath) SocketsAttached() bool { return exists(d.linkPin(socketHook(), loIfindex)) }

// nameNetns writes the cookie of the network namespace that we are in.
func (d *Datapath) nameNetns() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return fmt.Errorf("read cookie of the network namespace: %w", err)
	}
	config, err := d.Maps.Config.Get()
	if err != nil || config.NetnsCookie == cookie {
		return err
	}
	config.NetnsCookie = cookie
	return d.Maps.Config.Put(config)
}

// cgroupMount finds where the root of the cgroups v2 is mounted, "" if nowhere: beside v1
// the place is anybody's choice. The usual ones are looked at first, since a node has
// thousands of mounts, and the kernel takes milliseconds to list them. (A mount of our own
// would do, but would reset what the others' options, as nsdelegate, say of all.)
func cgroupMount(usual []string, mountinfo string) (string, error) {
	for _, path := range usual {
		if isCgroupRoot(path) {
			return path, nil
		}
	}
	mounts, err := os.ReadFile(mountinfo) // a line may be long: an overlay of hundreds of layers
	return cgroupRoot(string(mounts)), err
}

// isCgroupRoot says whether the root of the cgroups v2 is mounted at path: no other cgroup
// lacks the file cgroup.type (Linux, Documentation/admin-guide/cgroup-v2.rst).
func isCgroupRoot(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.CGROUP2_SUPER_MAGIC && !exists(filepath.Join(path, "cgroup.type"))
}

func cgroupRoot(mounts string) string {
	for line := range strings.Lines(mounts) {
		// proc(5): id, parent, device, root, mount point, options, any others, "-", type, ...
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return unescape(fields[4])
		}
	}
	return ""
}

// unescape reads a path of mountinfo, in which blanks are octal.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

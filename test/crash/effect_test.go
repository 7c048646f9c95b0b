// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a call of a traced thread.
type call struct {
	pid, tid int
	nr       uint64
	args     [6]uint64
}

// bpfEffects are the commands of bpf(2) that change what outlives the process, or hold
// something that does until it is pinned.
var bpfEffects = map[uint64]string{
	unix.BPF_MAP_UPDATE_ELEM:  "map update",
	unix.BPF_MAP_DELETE_ELEM:  "map delete",
	unix.BPF_MAP_DELETE_BATCH: "map delete batch",
	unix.BPF_MAP_UPDATE_BATCH: "map update batch",
	unix.BPF_OBJ_PIN:          "pin",
	unix.BPF_LINK_CREATE:      "link create",
	unix.BPF_LINK_UPDATE:      "link update",
	unix.BPF_LINK_DETACH:      "link detach",
	unix.BPF_PROG_ATTACH:      "program attach",
	unix.BPF_PROG_DETACH:      "program detach",
}

// effect names what a call has done that returned result; "" if nothing counts.
func (c call) effect(result int64) string {
	if result < 0 {
		return ""
	}
	switch c.nr {
	case unix.SYS_BPF:
		return bpfEffects[c.args[0]]
	case unix.SYS_SENDTO:
		return c.netlink(c.args[1])
	case unix.SYS_SENDMSG:
		return c.netlinkMessage()
	case unix.SYS_MKDIRAT:
		return "mkdir"
	case unix.SYS_UNLINKAT:
		return "unlink"
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return "rename"
	case unix.SYS_MOUNT, unix.SYS_UMOUNT2:
		return "mount"
	case unix.SYS_FLOCK:
		return "flock"
	case unix.SYS_OPENAT:
		if c.args[2]&unix.O_CREAT != 0 {
			return "create"
		}
	case unix.SYS_WRITE:
		return c.write()
	case unix.SYS_WAITID:
		return "child's end"
	}
	return ""
}

// write counts what goes to files and to stdout, not the runtime's pipes.
func (c call) write() string {
	if c.args[0] == 1 {
		return "write stdout"
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, c.args[0]))
	if err != nil || !strings.HasPrefix(path, "/") || path == "/dev/null" {
		return ""
	}
	return "write " + strings.TrimPrefix(path, "/proc/sys/")
}

// netlink names a request that is more than a question.
func (c call) netlink(addr uint64) string {
	head := c.read(addr, 8)
	if head == nil {
		return "send"
	}
	kind := binary.NativeEndian.Uint16(head[4:])
	if kind < unix.RTM_BASE || kind&3 == 2 { // RTM_GET*
		return ""
	}
	return fmt.Sprintf("netlink %d", kind)
}

// netlinkMessage is netlink for the first part of a struct msghdr.
func (c call) netlinkMessage() string {
	vector := c.read(c.args[1]+16, 8)
	if vector == nil {
		return "send"
	}
	base := c.read(binary.NativeEndian.Uint64(vector), 8)
	if base == nil {
		return "send"
	}
	return c.netlink(binary.NativeEndian.Uint64(base))
}

// read gives memory of the traced thread, nil if it cannot be read.
func (c call) read(addr uint64, n int) []byte {
	b := make([]byte, n)
	if got, err := unix.PtracePeekData(c.tid, uintptr(addr), b); err != nil || got != n {
		return nil
	}
	return b
}

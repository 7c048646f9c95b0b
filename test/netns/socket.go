// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// askPktinfo has the kernel say which address a datagram was sent to.
func askPktinfo(c *net.UDPConn, family string) error {
	return control(c, func(fd int) error {
		if family == "4" {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

// pktinfo returns that address, and the control message that answers from it.
func pktinfo(oob []byte) (netip.Addr, []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, nil
	}
	for _, m := range msgs {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO:
			a := [4]byte(m.Data[8:12]) // in_pktinfo.ipi_addr
			return netip.AddrFrom4(a), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO:
			a := [16]byte(m.Data[:16]) // in6_pktinfo.ipi6_addr
			return netip.AddrFrom16(a), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a})
		}
	}
	return netip.Addr{}, nil
}

// shareable lets several connections have one source port.
func shareable(_, _ string, c syscall.RawConn) error {
	return onFD(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
}

// cubic: the machine's default may be bbr, which shapes itself.
func cubic(_, _ string, c syscall.RawConn) error {
	return onFD(c, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}

// disconnect sends a RST and frees the tuple, whoever else holds the descriptor.
func disconnect(fd int) error {
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec)); errno != 0 {
		return errno
	}
	return nil
}

// control runs f on the descriptor of a socket.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return onFD(raw, f)
}

func onFD(raw syscall.RawConn, f func(fd int) error) error {
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

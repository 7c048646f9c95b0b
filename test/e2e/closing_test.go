// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// closing answers on port 80 of a pod with the client's address, and closes first when
// it is asked to.
func closing(t *testing.T, ns *netns.NS) {
	t.Helper()
	stop, err := ns.Accept("tcp", 80, answerOnce)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	err = ns.Do(func() error {
		u, err := net.ListenPacket("udp4", ":80")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = u.Close() })
		u6, err := net.ListenPacket("udp6", ":80")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = u6.Close() })
		go answerClosing(u)
		go answerClosing(u6)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func answerOnce(c net.Conn) {
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil {
		return
	}
	_, _ = c.Write([]byte(c.RemoteAddr().String() + "\n"))
	if string(buf[:n]) != "server\n" {
		_, _ = c.Read(buf)
	}
}

func answerClosing(c net.PacketConn) {
	buf := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(from.String()+"\n"), from)
	}
}

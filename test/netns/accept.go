// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"io"
	"net"
)

// Accept has each connection to a port handled, and then closed, until stop is called. network
// is "tcp", of both families, or "tcp4".
func (ns *NS) Accept(network string, port uint16, each func(net.Conn)) (stop func(), err error) {
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen(network, fmt.Sprintf(":%d", port)); return err }); err != nil {
		return nil, fmt.Errorf("listen on port %d in %s: %w", port, ns.Name, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
	return func() { _ = l.Close() }, nil
}

// SendBack answers a connection with what it says.
func SendBack(c net.Conn) { _, _ = io.Copy(c, c) }

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Server answers on one port of a namespace, TCP and UDP, both families, with
// its name and the two addresses as it sees them, followed by what it was sent.
// A request that begins with "hold:KEY;" is answered when Release(KEY) is called.
type Server struct {
	Name string
	Port uint16

	mu      sync.Mutex
	holds   map[string]func() error // how to answer
	resets  map[netip.AddrPort]bool // clients whose connection was reset
	conns   map[net.Conn]bool
	closers []io.Closer
	closed  bool
	busy    sync.WaitGroup
}

// Serve starts a Server in the namespace; it ends with the test, or by Close.
func (ns *NS) Serve(tb testing.TB, port uint16) *Server {
	tb.Helper()
	s, err := ns.TryServe(port)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// TryServe is Serve for a port that may be taken.
func (ns *NS) TryServe(port uint16) (*Server, error) {
	s := &Server{Name: ns.Name, Port: port, holds: map[string]func() error{}, resets: map[netip.AddrPort]bool{}, conns: map[net.Conn]bool{}}
	for _, family := range []string{"4", "6"} {
		if err := ns.Do(func() error { return s.listen(family) }); err != nil {
			s.Close()
			return nil, fmt.Errorf("serve %d in %s: %w", port, ns.Name, err)
		}
	}
	return s, nil
}

// listen runs inside the namespace.
func (s *Server) listen(family string) error {
	at := fmt.Sprintf(":%d", s.Port)
	l, err := net.Listen("tcp"+family, at)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l)
	pc, err := net.ListenPacket("udp"+family, at)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, pc)
	udp := pc.(*net.UDPConn)
	if err := askPktinfo(udp, family); err != nil {
		return err
	}
	s.busy.Go(func() { s.accept(l) })
	s.busy.Go(func() { s.serveUDP(udp) })
	return nil
}

// Close stops answering and resets what is open. Idempotent.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.closers {
		_ = c.Close()
	}
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.busy.Wait()
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.busy.Go(func() { s.serveTCP(c) })
	}
}

func (s *Server) serveTCP(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	for {
		req, err := readFrame(c)
		if err != nil {
			if errors.Is(err, syscall.ECONNRESET) {
				s.mu.Lock()
				s.resets[c.RemoteAddr().(*net.TCPAddr).AddrPort()] = true
				s.mu.Unlock()
			}
			return
		}
		body := s.body(c.LocalAddr().String(), c.RemoteAddr().String(), req)
		if err := s.answer(req, func() error { return writeFrame(c, body) }); err != nil {
			return
		}
	}
}

func (s *Server) serveUDP(c *net.UDPConn) {
	buf, oob := make([]byte, 65536), make([]byte, 256)
	for {
		n, on, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return
		}
		local, reply := pktinfo(oob[:on])
		req := bytes.Clone(buf[:n])
		body := s.body(netip.AddrPortFrom(local, s.Port).String(), from.String(), req)
		_ = s.answer(req, func() error {
			_, _, err := c.WriteMsgUDPAddrPort(body, reply, from)
			return err
		})
	}
}

func (s *Server) body(local, remote string, req []byte) []byte {
	return append(fmt.Appendf(nil, "%s %s %s\n", s.Name, local, remote), req...)
}

func (s *Server) answer(req []byte, send func() error) error {
	key, held := strings.CutPrefix(string(req[:min(len(req), 64)]), "hold:")
	key, _, ok := strings.Cut(key, ";")
	if !held || !ok {
		return send()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[key] = send
	return nil
}

// Release sends the answer of a held request, waiting for the request first.
func (s *Server) Release(key string) error {
	var send func() error
	err := Poll(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if send = s.holds[key]; send == nil {
			return fmt.Errorf("server %s: no request %q came", s.Name, key)
		}
		delete(s.holds, key)
		return nil
	})
	if err != nil {
		return err
	}
	return send()
}

// Has says whether a request is being held back.
func (s *Server) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[key] != nil
}

// WasReset says whether the client's connection ended by a reset.
func (s *Server) WasReset(client netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resets[client]
}

// Held waits for a request to arrive without answering it.
func (s *Server) Held(key string) error {
	return Poll(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holds[key] == nil {
			return fmt.Errorf("server %s: no request %q came", s.Name, key)
		}
		return nil
	})
}

// TCP messages are a length and a body.
func writeFrame(w io.Writer, body []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, min(binary.BigEndian.Uint32(head[:]), 1<<20))
	_, err := io.ReadFull(r, body)
	return body, err
}

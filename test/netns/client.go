// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Call says how to ask a Server: "tcp" or "udp", from where (the zero AddrPort
// leaves it to the kernel) and to where.
type Call struct {
	Proto    string
	From, To netip.AddrPort
	Size     int           // of the request, at least
	Timeout  time.Duration // zero: generous, but a lost SYN fails (its repetition comes after 1 s)
}

// Reply is what the Server said of itself and of the client.
type Reply struct {
	Server        string
	Local, Remote netip.AddrPort // as the server sees them
	Size          int            // of what it sent back
}

// Flow is an open connection, or a UDP socket that keeps its port.
type Flow struct {
	call Call
	tcp  *net.TCPConn
	udp  *net.UDPConn
}

// patience is how long an answer and a connection may take.
func patience() (answer, connect time.Duration) {
	if Emulated() {
		return Patience, Patience
	}
	return 2 * time.Second, 950 * time.Millisecond
}

// nonce tells the answers of one request from late ones of another.
var nonce atomic.Uint64

// Ask opens, asks once and closes.
func (ns *NS) Ask(c Call) (Reply, error) {
	f, err := ns.Open(c)
	if err != nil {
		return Reply{}, err
	}
	defer f.Close()
	return f.Ask()
}

// Open connects by TCP, or binds a UDP socket.
func (ns *NS) Open(c Call) (*Flow, error) {
	f := &Flow{call: c}
	if c.Timeout == 0 {
		f.call.Timeout, _ = patience()
	}
	return f, ns.Do(func() error { return f.open() })
}

func (f *Flow) open() error {
	c := f.call
	if c.Proto == "tcp" {
		_, most := patience()
		d := net.Dialer{Timeout: min(c.Timeout, most), Control: shareable}
		if c.From.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(c.From)
		}
		conn, err := d.Dial("tcp", c.To.String())
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		f.tcp = conn.(*net.TCPConn)
		return nil
	}
	network, from := "udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if c.To.Addr().Is6() {
		network, from = "udp6", netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	if c.From.IsValid() {
		from = c.From
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(from))
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	f.udp = conn
	return nil
}

// Toward is a UDP flow from the same socket to another address.
func (f *Flow) Toward(to netip.AddrPort) *Flow {
	g := *f
	g.call.To = to
	return &g
}

// Within is the flow with another Timeout.
func (f *Flow) Within(d time.Duration) *Flow {
	g := *f
	g.call.Timeout = d
	return &g
}

// Sized is the flow with requests of another Size.
func (f *Flow) Sized(bytes int) *Flow {
	g := *f
	g.call.Size = bytes
	return &g
}

// Close closes the connection or the socket. A nil Flow is closed. A process that
// is being started beside may hold the descriptor a little longer, so the farewell
// is said first.
func (f *Flow) Close() {
	switch {
	case f == nil:
	case f.tcp != nil:
		_ = f.tcp.CloseWrite()
		_ = f.tcp.Close()
	case f.udp != nil:
		_ = f.udp.Close()
	}
}

// Reset closes a TCP connection without a farewell, so that its tuple is free at
// once on the client's side.
func (f *Flow) Reset() {
	if f.tcp != nil {
		_ = control(f.tcp, disconnect)
	}
	f.Close()
}

// Ask sends a request and waits for its answer.
func (f *Flow) Ask() (Reply, error) {
	req, err := f.Send("")
	if err != nil {
		return Reply{}, err
	}
	return f.Await(req)
}

// Send sends a request without waiting; Await takes what it returns. A hold
// that is not empty keeps the answer back until the server releases that key.
func (f *Flow) Send(hold string) ([]byte, error) {
	req := fmt.Appendf(nil, "n%d;", nonce.Add(1))
	if hold != "" {
		req = fmt.Appendf(nil, "hold:%s;n%d;", hold, nonce.Add(1))
	}
	req = append(req, bytes.Repeat([]byte{'.'}, max(0, f.call.Size-len(req)))...)
	var err error
	if f.tcp != nil {
		_ = f.tcp.SetDeadline(time.Now().Add(f.call.Timeout))
		err = writeFrame(f.tcp, req)
	} else {
		_, err = f.udp.WriteToUDPAddrPort(req, f.call.To)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: send: %w", f.call, err)
	}
	return req, nil
}

// Await waits for the answer to req. An answer from another address than the
// one called is an error; late answers to other requests are passed over.
func (f *Flow) Await(req []byte) (Reply, error) {
	deadline := time.Now().Add(f.call.Timeout)
	buf := make([]byte, 65536)
	for {
		var body []byte
		var err error
		from := f.call.To
		if f.tcp != nil {
			_ = f.tcp.SetDeadline(deadline)
			body, err = readFrame(f.tcp)
		} else {
			_ = f.udp.SetReadDeadline(deadline)
			var n int
			n, from, err = f.udp.ReadFromUDPAddrPort(buf)
			body = buf[:n]
		}
		if err != nil {
			return Reply{}, fmt.Errorf("%s: no answer: %w", f.call, err)
		}
		r, payload, err := parseReply(body)
		if err != nil {
			return Reply{}, fmt.Errorf("%s: %w", f.call, err)
		}
		if !bytes.Equal(payload, req) {
			continue
		}
		if from != f.call.To {
			return r, fmt.Errorf("%s: the answer came from %s", f.call, from)
		}
		return r, nil
	}
}

func parseReply(body []byte) (Reply, []byte, error) {
	head, payload, ok := bytes.Cut(body, []byte("\n"))
	words := bytes.Fields(head)
	if !ok || len(words) != 3 {
		return Reply{}, nil, errors.New("answer is not a Server's")
	}
	r := Reply{Server: string(words[0]), Size: len(payload)}
	var err1, err2 error
	r.Local, err1 = netip.ParseAddrPort(string(words[1]))
	r.Remote, err2 = netip.ParseAddrPort(string(words[2]))
	return r, payload, errors.Join(err1, err2)
}

// LocalPort is the source port that the kernel or the caller chose.
func (f *Flow) LocalPort() uint16 {
	if f.tcp != nil {
		return f.tcp.LocalAddr().(*net.TCPAddr).AddrPort().Port()
	}
	return f.udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func (f *Flow) String() string { return f.call.String() }

// String is the call as a failing test prints it.
func (c Call) String() string {
	from := "?"
	if c.From.IsValid() {
		from = c.From.String()
	}
	size := ""
	if c.Size > 0 {
		size = fmt.Sprintf(" of %d bytes", c.Size)
	}
	return fmt.Sprintf("%s%s %s -> %s", c.Proto, size, from, c.To)
}

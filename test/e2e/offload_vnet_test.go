// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// virtio is struct virtio_net_hdr: what a device is to do with a packet, or what is still
// to be done.
type virtio struct {
	needsSum  bool
	gso       uint8 // VIRTIO_NET_HDR_GSO_*
	headers   uint16
	size      uint16 // payload a segment
	sumStart  uint16
	sumOffset uint16
}

const (
	virtioLen      = 10
	virtioNeedsSum = 1 // flag; the field holds the sum of the pseudo-header
	gsoNone        = 0
	gsoTCP4        = 1
	gsoTCP6        = 4
	gsoUDP         = 5 // UDP_L4: one datagram a segment
)

func (v virtio) marshal(frame []byte) []byte {
	b := make([]byte, virtioLen, virtioLen+len(frame))
	if v.needsSum {
		b[0] = virtioNeedsSum
	}
	b[1] = v.gso
	for i, word := range []uint16{v.headers, v.size, v.sumStart, v.sumOffset} {
		binary.NativeEndian.PutUint16(b[2+2*i:], word)
	}
	return append(b, frame...)
}

func readVirtio(b []byte) virtio {
	word := func(i int) uint16 { return binary.NativeEndian.Uint16(b[2+2*i:]) }
	return virtio{b[0]&virtioNeedsSum != 0, b[1], word(0), word(1), word(2), word(3)}
}

// wireEnd is a packet socket that says and hears of each packet what a device would.
type wireEnd struct {
	fd    int
	index int
	mac   packet.MAC
	buf   []byte
}

func openWire(t *testing.T, ns *netns.NS, dev string) *wireEnd {
	t.Helper()
	w := &wireEnd{fd: -1, buf: make([]byte, 1<<17)}
	err := ns.Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		w.index, w.mac = i.Index, packet.MAC(i.HardwareAddr)
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		patience := unix.NsecToTimeval(netns.Patience.Nanoseconds())
		return errors.Join(
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: w.index}))
	})
	if err != nil {
		t.Fatalf("open packet socket on %s of %s: %v", dev, ns.Name, err)
	}
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	return w
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

func (w *wireEnd) send(v virtio, frame []byte) error {
	to := &unix.SockaddrLinklayer{Ifindex: w.index, Halen: 6, Protocol: bigEndian(binary.BigEndian.Uint16(frame[12:]))}
	return unix.Sendto(w.fd, v.marshal(frame), 0, to)
}

// next is the next TCP or UDP packet to a port, whose checksum is complete afterwards.
func (w *wireEnd) next(port uint16) (virtio, []byte, error) {
	for {
		n, _, err := unix.Recvfrom(w.fd, w.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return virtio{}, nil, fmt.Errorf("receive: %w", err)
		}
		v, frame := readVirtio(w.buf), w.buf[virtioLen:n]
		if s := read(frame); (s.proto == packet.ProtoTCP || s.proto == packet.ProtoUDP) && s.dport == port {
			return v, frame, v.complete(frame, s.proto)
		}
	}
}

// complete does what the device would: the sum of all from sumStart on, in which the field
// counts as it is, goes into the field.
func (v virtio) complete(frame []byte, proto uint8) error {
	if !v.needsSum {
		return nil
	}
	at := int(v.sumStart) + int(v.sumOffset)
	if at+2 > len(frame) {
		return fmt.Errorf("checksum at %d+%d of a frame of %d bytes", v.sumStart, v.sumOffset, len(frame))
	}
	sum := packet.Checksum(frame[v.sumStart:], 0)
	if proto == packet.ProtoUDP && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
	return nil
}

// partial leaves the checksum of a frame to the device: the field gets the sum of the
// pseudo-header alone. Segments that are longer than size are the device's to cut, too.
func partial(p packet.Packet, size int) (virtio, []byte) {
	frame := p.Frame()
	l4, addrs := packet.EthLen+20, frame[packet.EthLen+12:packet.EthLen+20]
	v := virtio{needsSum: true, gso: gsoTCP4, sumOffset: 16}
	if !p.IPv4() {
		l4, addrs, v.gso = packet.EthLen+40, frame[packet.EthLen+8:packet.EthLen+40], gsoTCP6
	}
	proto := p.Transport.Protocol(p.IPv4())
	header := 8
	if proto == packet.ProtoUDP {
		v.gso, v.sumOffset = gsoUDP, 6
	} else {
		header = int(frame[l4+12]>>4) * 4
	}
	v.sumStart, v.headers, v.size = uint16(l4), uint16(l4+header), uint16(size)
	if len(p.Payload) <= size {
		v.gso, v.size = gsoNone, 0
	}
	length := len(frame) - l4
	pseudo := ^packet.Checksum(addrs, uint32(proto)+uint32(length>>16)+uint32(length&0xffff))
	binary.BigEndian.PutUint16(frame[l4+int(v.sumOffset):], pseudo)
	return v, frame
}

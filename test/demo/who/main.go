// SPDX-License-Identifier: Apache-2.0

// Who answers every caller with its own name and the caller's address as it arrived here, by HTTP over
// TCP and with one datagram over UDP: so the demo shows whether a translation kept it. With -ask it is
// the caller over UDP, as curl is over TCP.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"
)

// patience is how long an answer may take.
const patience = 5 * time.Second

func main() {
	log.SetFlags(0)
	name := flag.String("name", "who", "the name to answer with")
	listen := flag.String("listen", ":80", "address to answer on, TCP and UDP")
	server := flag.String("ask", "", "ask this address over UDP instead")
	flag.Parse()
	var err error
	if *server != "" {
		err = ask(*server)
	} else {
		err = serve(*name, *listen)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// ask prints what the server answers to one datagram.
func ask(server string) error {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return fmt.Errorf("dial UDP %s: %w", server, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := conn.Write([]byte("who\n")); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	buf := make([]byte, 1500)
	n, err := conn.Read(buf)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	_, err = os.Stdout.Write(buf[:n])
	return err
}

// serve answers on both protocols until one of them ends.
func serve(name, listen string) error {
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on TCP %s: %w", listen, err)
	}
	udp, err := net.ListenPacket("udp", listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on UDP %s: %w", listen, err), tcp.Close())
	}
	done := make(chan error, 2)
	go func() { done <- http.Serve(tcp, handler(name)) }()
	go func() { done <- answer(udp, name) }()
	return <-done
}

func handler(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, greeting(name, r.RemoteAddr))
	}
}

// answer sends the caller's address back for every datagram.
func answer(conn net.PacketConn, name string) error {
	buf := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("read from UDP %s: %w", conn.LocalAddr(), err)
		}
		// An answer that cannot be sent concerns its caller alone.
		if _, err := conn.WriteTo([]byte(greeting(name, from.String())), from); err != nil {
			log.Printf("answer %s: %v", from, err)
		}
	}
}

// greeting leaves the port out: it is different in every run.
func greeting(name, from string) string {
	host := from
	if ap, err := netip.ParseAddrPort(from); err == nil {
		host = ap.Addr().Unmap().String()
	}
	return fmt.Sprintf("%s sees %s\n", name, host)
}

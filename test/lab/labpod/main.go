// SPDX-License-Identifier: Apache-2.0

// labpod is all that the lab's image holds: a sandbox's pause, a server that tells its clients what it
// saw of them, and a client that measures.
//
//	labpod pause                     wait for a signal
//	labpod serve                     HTTP on 8080, UDP on 8081, an echo on TCP 8082, a sink on 8083; $POD is the name it answers with
//	labpod get URL                   print the answer
//	labpod udp HOST:PORT             send a datagram, print the answer
//	labpod pull URL SECONDS          bit/s from the server, without the first second
//	labpod push HOST:PORT SECONDS    bit/s to a sink, likewise, as it counts them
//	labpod rr HOST:PORT SECONDS      round trips a second of one byte to an echo, likewise
//	labpod count NAME=ADDRESS...     ask these servers without end; HTTP on 8080 tells what was lost (count.go)
//
// It exits with 1 and a line on stderr when something did not work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	httpPort = ":8080"
	udpPort  = ":8081"
	echoPort = ":8082"
	sinkPort = ":8083"
	warmup   = time.Second
	patience = 3 * time.Second

	chunkSize = 256 << 10 // bytes read or written at once
)

func main() {
	out, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "labpod:", err)
		os.Exit(1)
	}
	fmt.Print(out)
}

func run(args []string) (string, error) {
	switch {
	case len(args) == 1 && args[0] == "pause":
		pause()
		return "", nil
	case len(args) == 1 && args[0] == "serve":
		return "", serve(os.Getenv("POD"))
	case len(args) == 2 && args[0] == "get":
		return get(args[1])
	case len(args) == 2 && args[0] == "udp":
		return udp(args[1])
	case len(args) > 1 && args[0] == "count":
		return "", count(args[1:])
	case len(args) == 3 && (args[0] == "pull" || args[0] == "push" || args[0] == "rr"):
		secs, err := strconv.Atoi(args[2])
		if err != nil {
			return "", fmt.Errorf("read seconds: %w", err)
		}
		span := warmup + time.Duration(secs)*time.Second
		switch args[0] {
		case "pull":
			return pull(args[1], span)
		case "rr":
			return roundTrips(args[1], span)
		}
		return push(args[1], span)
	}
	return "", errors.New("usage: labpod pause | serve | count NAME=ADDRESS... | get URL | udp HOST:PORT | pull URL SECONDS | {push | rr} HOST:PORT SECONDS")
}

// pause stays until it is told to end and reaps what it adopts, being PID 1 of a pod.
func pause() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve(name string) error {
	if err := errors.Join(echo(), sink()); err != nil {
		return err
	}
	pc, err := net.ListenPacket("udp", udpPort)
	if err != nil {
		return fmt.Errorf("listen on UDP: %w", err)
	}
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			out := answer(name, from.String())
			if n == 8 { // a counter's, which wants its number back
				out = buf[:n]
			}
			_, _ = pc.WriteTo(out, from)
		}
	}()

	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answer(name, r.RemoteAddr)) })
	http.HandleFunc("/source", func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, chunkSize)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})

	l, err := listen(httpPort)
	if err != nil {
		return err
	}
	return http.Serve(l, nil)
}

// answer names the server and the client as the server saw it: "NAME ADDRESS".
func answer(name, client string) []byte {
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		host = client
	}
	return []byte(name + " " + host + "\n")
}

// rate reads to the end and returns bit/s between the first second and the last byte.
func rate(r io.Reader) float64 {
	buf := make([]byte, chunkSize)
	var (
		n           int
		start, last time.Time
	)
	for {
		k, err := r.Read(buf)
		now := time.Now()
		if start.IsZero() {
			start = now
		}
		if k > 0 && now.Sub(start) > warmup {
			n, last = n+k, now
		}
		if err != nil {
			break
		}
	}
	span := last.Sub(start.Add(warmup)).Seconds()
	if span <= 0 {
		return 0
	}
	return float64(n) * 8 / span
}

// client asks on a connection of its own each time.
func client(timeout time.Duration) *http.Client {
	d := net.Dialer{Timeout: patience, Control: cubic}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
}

func get(url string) (string, error) {
	resp, err := client(patience).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// udp asks up to three times, as a datagram may be lost while a neighbour is being resolved.
func udp(addr string) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buf := make([]byte, 65536)
	for range 3 {
		if _, err = conn.Write([]byte("hello\n")); err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		var n int
		if n, err = conn.Read(buf); err == nil {
			return string(buf[:n]), nil
		}
	}
	return "", err
}

func pull(url string, span time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client(0).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%.0f\n", rate(resp.Body)), nil
}

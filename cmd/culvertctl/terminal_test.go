// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/metrics"
)

// pty gives a terminal of 5 lines: what is written to one end is read from the other.
func pty(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { user.Close() })
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 120})
	}
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

// On a terminal there are colours, unless the user wants none, and top writes over the
// table before, no further than the last line but one.
func TestTerminal(t *testing.T) {
	user, program := pty(t)
	for _, c := range []struct {
		noColor, term string
		want          bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := coloured(program); got != c.want {
			t.Errorf("NO_COLOR=%q TERM=%q: colours: %v", c.noColor, c.term, got)
		}
	}
	before, after := readings()
	a := &app{out: program, output: "table", colour: true}
	if err := topShow(a, topRows(&metrics.Meter{}, before, after, 0), topOptions{interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	screen := make([]byte, 4096)
	n, err := user.Read(screen)
	if err != nil {
		t.Fatal(err)
	}
	// The clock differs.
	const head = len("\x1b[H00:00:00")
	const want = "  pods 3, rx 11Mbit/s, tx 500kbit/s, drops 3, every 1s\x1b[K\r\n" +
		"\x1b[1mCONTAINER  IFNAME  ADDRESS  RX-BIT/S  LIMIT  RX-PKT/S  TX-BIT/S  LIMIT  TX-PKT/S  DROPS\x1b[0m\x1b[K\r\n" +
		"free       eth0    -        10M       -      2000      0         -      0         0\x1b[K\r\n" +
		"\x1b[31mlimited    eth0    -        1M        1M     100       500k      2M     50        3\x1b[0m\x1b[K\r\n\x1b[J"
	if got := string(screen[head:n]); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

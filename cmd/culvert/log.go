// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
)

// full are the errors that say nothing against the configuration: pods go on starting on
// a node whose disk is full or broken.
var full = []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, unix.ENFILE, unix.EMFILE}

// openLog opens the log file. One that cannot be, for what may pass, is no error: what
// would be logged then goes to stderr, which runtimes keep. What is lost of lines that no
// room is left for is lost.
func openLog(path string) (*os.File, io.Writer, error) {
	// Not blocking: a FIFO nobody reads is refused.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	for _, passing := range full {
		if errors.Is(err, passing) {
			fmt.Fprintf(os.Stderr, "culvert: log file %s: %v\n", path, err)
			return nil, os.Stderr, nil
		}
	}
	if err != nil {
		return nil, nil, netconf.Bad("logFile", fmt.Sprintf("%q", path), err.Error())
	}
	return f, f, nil
}

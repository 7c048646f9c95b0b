// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl is a setting below /proc/sys: Path "net/ipv4/ip_forward". Those below net
// belong to the namespace of the calling thread.
type Sysctl struct {
	Path, Value string
	Optional    bool // a kernel without the setting is as good: IPv6 switched off
}

func (s Sysctl) file() string { return filepath.Join("/proc/sys", s.Path) }

// Get reads the value that the setting has now.
func (s Sysctl) Get() (string, error) {
	f, err := os.Open(s.file())
	if err != nil {
		return "", fmt.Errorf("read sysctl: %w", err)
	}
	defer f.Close()
	// A list of ports comes in one read or is cut: the kernel gives nothing at another
	// offset than 0.
	for size := 512; ; size *= 8 {
		b := make([]byte, size)
		n, err := f.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read sysctl: %w", err)
		}
		if n < size {
			return strings.TrimSpace(string(b[:n])), nil
		}
	}
}

// besideContainer is where a container without privileges, whose /proc/sys is read-only, may have
// the node's own settings of the network.
const besideContainer = "/host/proc/sys"

// Set writes the value. O_TRUNC and O_CREATE would be for a file; a sysctl is none.
func (s Sysctl) Set() error {
	f, err := os.OpenFile(s.file(), os.O_WRONLY, 0)
	if errors.Is(err, unix.EROFS) {
		if beside, other := os.OpenFile(filepath.Join(besideContainer, s.Path), os.O_WRONLY, 0); other == nil {
			f, err = beside, nil
		}
	}
	if s.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s=%s: %w", s.Path, s.Value, err)
	}
	defer f.Close()
	if _, err := f.WriteString(s.Value); err != nil {
		return fmt.Errorf("set sysctl %s=%s: %w", s.Path, s.Value, err)
	}
	return nil
}

// Ensure writes the value unless the setting has it: /proc/sys may be read-only where
// an administrator has set it already. changed says whether it wrote.
func (s Sysctl) Ensure() (changed bool, err error) {
	now, err := s.Get()
	if err != nil || now == s.Value {
		return false, err
	}
	return true, s.Set()
}

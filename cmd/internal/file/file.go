// SPDX-License-Identifier: Apache-2.0

// Package file writes files that others read while they are written.
package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes beside the file and renames: whoever reads, sees the old text or the new one,
// whole, also after a loss of power. Neither runtimes nor node_exporter read names that end like
// the temporary one's. A directory that is not there is an error that wraps fs.ErrNotExist.
func Replace(path string, text []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, temporary(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Sweep removes what a killed Replace of the same file left. Call it where nobody else replaces it.
func Sweep(path string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), temporary(path)))
	for _, old := range left {
		_ = os.Remove(old)
	}
}

func temporary(path string) string { return "." + filepath.Base(path) + ".*.tmp" }

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/culvert-cni/culvert/cmd/internal/file"
)

// Programs are the binaries that Install copies where the runtime finds plugins.
var Programs = []string{"culvert", "culvert-ipam", "culvertctl"}

// Install copies the programs. A run that goes on keeps its own file: each is written beside
// and renamed. What is equal is left alone, so that a restart writes nothing. did is told what
// was written.
func Install(from, to string, did func(path string)) error {
	for _, name := range Programs {
		path := filepath.Join(to, name)
		wrote, err := installFile(filepath.Join(from, name), path)
		if err != nil {
			return fmt.Errorf("install %s: %w", path, err)
		}
		if wrote {
			did(path)
		}
	}
	return nil
}

func installFile(from, to string) (wrote bool, err error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return false, err
	}
	now, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if info, err := os.Stat(to); err == nil && bytes.Equal(now, text) && info.Mode().Perm() == 0o755 {
		return false, nil
	}
	file.Sweep(to)
	return true, file.Replace(to, text, 0o755)
}

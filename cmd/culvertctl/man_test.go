// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

//go:generate go test -run ^TestManPages$ -args -update

var update = flag.Bool("update", false, "write docs/man in the place of comparing it")

const manDir = "../../docs/man"

// The manual pages that are committed say what --help says. They are made here and not by
// a verb, so that culvertctl does not carry what makes them.
func TestManPages(t *testing.T) {
	made := t.TempDir()
	root := newRoot(&bytes.Buffer{}, monotonic)
	root.DisableAutoGenTag = true
	root.InitDefaultHelpCmd()
	// The date of a page would be the day of its making.
	date := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "culvert", Manual: "culvert", Date: &date}, made); err != nil {
		t.Fatal(err)
	}
	want := pages(t, made)
	if *update {
		if err := os.RemoveAll(manDir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(manDir, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
	}
	got := pages(t, manDir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("docs/man/%s is not what culvertctl says now: go generate ./cmd/culvertctl", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("docs/man/%s is of a verb that is gone: go generate ./cmd/culvertctl", name)
		}
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(text)
	}
	return texts
}

// Every verb has an example, and what examples and docs/*.md call are verbs and flags
// that there are.
func TestExamples(t *testing.T) {
	root := newRoot(&bytes.Buffer{}, monotonic)
	each(root, func(c *cobra.Command) {
		if c.Runnable() && c.Example == "" && !strings.Contains(c.CommandPath(), "completion") {
			t.Errorf("%s --help has no example", c.CommandPath())
		}
		calls(t, c.CommandPath()+" --help", c.Example)
	})
	page, err := os.ReadFile("../../docs/culvertctl.md")
	if err != nil {
		t.Fatal(err)
	}
	each(root, func(c *cobra.Command) {
		if !strings.Contains(string(page), c.CommandPath()) && !strings.HasPrefix(c.CommandPath(), "culvertctl completion ") {
			t.Errorf("docs/culvertctl.md does not name %s", c.CommandPath())
		}
	})
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```\n.*?^```$").FindAllString(string(text), -1) {
			calls(t, file, block)
		}
	}
}

func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		each(sub, f)
	}
}

// calls parses every line that begins with culvertctl, without running it.
func calls(t *testing.T, where, text string) {
	t.Helper()
	for _, line := range regexp.MustCompile(`(?m)^[ \t]*culvertctl( [^#|<>…\n]*)?`).FindAllStringSubmatch(text, -1) {
		args := strings.Fields(line[1])
		c, rest, err := newRoot(&bytes.Buffer{}, monotonic).Find(args)
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil && c.Args != nil {
			err = c.Args(c, c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %q: %v", where, line[0], err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/culvert-cni/culvert/maps"
)

// Sandboxes lists what the container runtime has.
type Sandboxes interface {
	// List gives the ids of all sandboxes, whatever state they are in.
	List(ctx context.Context) (map[string]bool, error)
}

// Attachment is one that the node has rows of.
type Attachment struct {
	maps.Owner
	Age time.Duration
}

// Attachments are those of our network.
type Attachments interface {
	List() ([]Attachment, error)
	// Remove does what DEL would.
	Remove(ctx context.Context, owner maps.Owner) error
}

// Collector takes away what no runtime will ever delete: it lost the sandbox, with its disk or
// by force, and so never calls DEL. A sandbox is believed to be gone if two lists in a row lack
// it, and the attachment is older than a start of a pod takes: runtimes list a sandbox when it
// is complete.
type Collector struct {
	Sandboxes   Sandboxes
	Attachments Attachments
	Grace       time.Duration
	Log         *slog.Logger

	absent map[maps.Owner]bool // from the list before
}

// gcInterval is between two lists.
const gcInterval = time.Minute

// Run collects until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(gcInterval):
			if _, err := c.Collect(ctx); err != nil {
				c.Log.Warn("not collected", "error", err)
			}
		}
	}
}

// Collect is one round. It reads the attachments before the sandboxes: one that comes between is
// not judged.
func (c *Collector) Collect(ctx context.Context) (collected []maps.Owner, err error) {
	have, err := c.Attachments.List()
	if err != nil {
		return nil, err
	}
	sandboxes, err := c.Sandboxes.List(ctx)
	if err != nil {
		return nil, err // says nothing about any
	}
	absent, seen := map[maps.Owner]bool{}, map[maps.Owner]bool{}
	for _, a := range have {
		if a.Age < c.Grace || sandboxes[a.Container] || seen[a.Owner] {
			continue
		}
		seen[a.Owner], absent[a.Owner] = true, true
		if !c.absent[a.Owner] {
			continue
		}
		if err = c.Attachments.Remove(ctx, a.Owner); err != nil {
			err = fmt.Errorf("collect %s: %w", a.Owner, err)
			break
		}
		c.Log.Info("collected", "container", a.Container, "ifname", a.IfName, "age", a.Age.Round(time.Second).String())
		collected = append(collected, a.Owner)
		delete(absent, a.Owner)
	}
	c.absent = absent
	return collected, err
}

// FakeSandboxes is Sandboxes for tests.
type FakeSandboxes struct {
	IDs []string
	Err error
}

// List implements Sandboxes.
func (f *FakeSandboxes) List(context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for _, id := range f.IDs {
		ids[id] = true
	}
	return ids, f.Err
}

// FakeAttachments is Attachments for tests.
type FakeAttachments struct {
	Have    []Attachment
	Removed []maps.Owner
	Err     error // of Remove
}

// List implements Attachments.
func (f *FakeAttachments) List() ([]Attachment, error) { return f.Have, nil }

// Remove implements Attachments.
func (f *FakeAttachments) Remove(_ context.Context, o maps.Owner) error {
	if f.Err == nil {
		f.Removed = append(f.Removed, o)
	}
	return f.Err
}

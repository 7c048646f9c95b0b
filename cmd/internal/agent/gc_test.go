// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/culvert-cni/culvert/maps"
)

func owner(id string) maps.Owner {
	return maps.Owner{Network: NetworkName, Container: id, IfName: "eth0"}
}

func TestCollect(t *testing.T) {
	runtime := &FakeSandboxes{IDs: []string{"alive"}}
	node := &FakeAttachments{Have: []Attachment{
		{owner("alive"), time.Hour}, {owner("lost"), time.Hour}, {owner("lost"), time.Hour}, // two rows of one
		{owner("young"), time.Minute},
	}}
	c := &Collector{Sandboxes: runtime, Attachments: node, Grace: 10 * time.Minute, Log: slog.New(slog.DiscardHandler)}
	collect := func(want ...string) {
		t.Helper()
		got, err := c.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, o := range got {
			ids = append(ids, o.Container)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("collected %v, want %v", ids, want)
		}
	}
	collect() // the first list
	runtime.Err = errors.New("restarting")
	if _, err := c.Collect(t.Context()); err == nil {
		t.Error("a list that failed counted")
	}
	runtime.Err = nil
	collect("lost") // the second
	node.Have = node.Have[:1]
	collect()

	// Seen again in between: not two in a row.
	node.Have = []Attachment{{owner("flaky"), time.Hour}}
	collect()
	runtime.IDs = append(runtime.IDs, "flaky")
	collect()
	runtime.IDs = runtime.IDs[:1]
	collect()
	node.Err = errors.New("no such luck")
	if _, err := c.Collect(t.Context()); err == nil {
		t.Error("no error")
	}
	node.Err = nil
	collect("flaky")
	if want := []maps.Owner{owner("lost"), owner("flaky")}; !slices.Equal(node.Removed, want) {
		t.Errorf("removed %v", node.Removed)
	}
}

// fakeCRI is a runtime that answers.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
	sandboxes []*cri.PodSandbox
}

func (f *fakeCRI) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: f.sandboxes}, nil
}

func (f *fakeCRI) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "1.7.24"}, nil
}

func TestRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	fake, server := &fakeCRI{}, grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, fake)
	go server.Serve(l)
	defer server.Stop()
	r, err := OpenRuntime("unix://"+socket, "me")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if v, err := r.CNIVersion(t.Context()); err != nil || v != "1.0.0" {
		t.Errorf("CNI of containerd 1.7: %s, %v", v, err)
	}
	if _, err := r.List(t.Context()); !errors.Is(err, errOtherRuntime) {
		t.Errorf("an empty list: %v", err)
	}
	sandbox := func(id, uid string) *cri.PodSandbox {
		return &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Uid: uid}}
	}
	fake.sandboxes = []*cri.PodSandbox{sandbox("a", "other")}
	if _, err := r.List(t.Context()); !errors.Is(err, errOtherRuntime) {
		t.Errorf("a list without ourselves: %v", err)
	}
	fake.sandboxes = append(fake.sandboxes, sandbox("b", "me"))
	if ids, err := r.List(t.Context()); err != nil || len(ids) != 2 || !ids["a"] || !ids["b"] {
		t.Errorf("listed %v, %v", ids, err)
	}
}

func TestCNIVersion(t *testing.T) {
	for _, test := range []struct{ runtime, version, want string }{
		{"containerd", "v2.4.2", "1.1.0"}, {"containerd", "1.7.1", "1.0.0"}, {"containerd", "v1.6.20~ds1", "1.0.0"}, {"cri-o", "1.31.0", "1.1.0"},
	} {
		if got := cniVersion(test.runtime, test.version); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.runtime, test.version, got, test.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is a container runtime behind its socket.
type Runtime struct {
	conn   *grpc.ClientConn
	client cri.RuntimeServiceClient
	// PodUID is that of the pod that we are in. A runtime that does not know it is not this
	// node's, or not this node's any more, and what it lacks says nothing.
	PodUID string
}

const criPatience = 10 * time.Second

// errOtherRuntime says that a list is about another node, or about none.
var errOtherRuntime = errors.New("the runtime knows no sandbox of this pod")

// OpenRuntime takes the path of a socket, with or without unix://. It does not connect yet.
func OpenRuntime(socket, podUID string) (*Runtime, error) {
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(socket, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("open runtime %s: %w", socket, err)
	}
	return &Runtime{conn: conn, client: cri.NewRuntimeServiceClient(conn), PodUID: podUID}, nil
}

// Close ends the connection.
func (r *Runtime) Close() error { return r.conn.Close() }

// List implements Sandboxes.
func (r *Runtime) List(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, criPatience)
	defer cancel()
	answer, err := r.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	ids, here := map[string]bool{}, false
	for _, s := range answer.Items {
		ids[s.Id] = true
		here = here || s.Metadata.GetUid() == r.PodUID
	}
	if r.PodUID != "" && !here || len(ids) == 0 {
		return nil, errOtherRuntime
	}
	return ids, nil
}

// CNIVersion is the newest version of CNI that the runtime's library knows: containerd before
// 2.0 refuses a configuration of 1.1.0.
func (r *Runtime) CNIVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, criPatience)
	defer cancel()
	answer, err := r.client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("ask for the runtime's version: %w", err)
	}
	return cniVersion(answer.RuntimeName, answer.RuntimeVersion), nil
}

// LatestCNI is the version that runtimes of today know.
const LatestCNI = "1.1.0"

func cniVersion(runtime, version string) string {
	version = strings.TrimPrefix(version, "v")
	if runtime == "containerd" && (strings.HasPrefix(version, "1.") || strings.HasPrefix(version, "0.")) {
		return "1.0.0"
	}
	return LatestCNI
}

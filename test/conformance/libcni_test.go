// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/culvert-cni/culvert/test/netns"
)

// runtime calls plugins by libcni, as containerd and CRI-O do.
type runtime struct {
	*scene
	t     *testing.T
	cni   *libcni.CNIConfig
	cache string
	list  *libcni.NetworkConfigList
}

// newRuntime takes a list of plugins, each the keys over the usual configuration.
func newRuntime(t *testing.T, s *scene, version string, plugins ...string) *runtime {
	t.Helper()
	r := &runtime{scene: s, t: t, cache: t.TempDir()}
	r.cni = libcni.NewCNIConfigWithCacheDir(strings.Split(s.path(), ":"), r.cache, inNode{s.Node})
	r.configure(version, plugins...)
	return r
}

// configure changes the conflist.
func (r *runtime) configure(version string, plugins ...string) {
	r.t.Helper()
	list := []string{}
	for _, keys := range plugins {
		if keys != "" {
			keys = "," + keys
		}
		list = append(list, r.config(r.t, `"name":null,"cniVersion":null,"capabilities":{"portMappings":true,"bandwidth":true,"ips":true}`+keys))
	}
	conf := fmt.Sprintf(`{"cniVersion":%q,"name":"net","plugins":[%s]}`, version, strings.Join(list, ","))
	var err error
	if r.list, err = libcni.NetworkConfFromBytes([]byte(conf)); err != nil {
		r.t.Fatal(err)
	}
}

// rt is what a runtime knows of a pod.
func rt(id string, ns *netns.NS, capabilities ...string) *libcni.RuntimeConf {
	c := &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "eth0", CapabilityArgs: map[string]any{},
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", id}, {"K8S_POD_INFRA_CONTAINER_ID", id}}}
	for _, keys := range capabilities {
		if err := json.Unmarshal([]byte("{"+keys+"}"), &c.CapabilityArgs); err != nil {
			panic(err)
		}
	}
	return c
}

func (r *runtime) add(c *libcni.RuntimeConf) error {
	_, err := r.cni.AddNetworkList(context.Background(), r.list, c)
	return err
}

func (r *runtime) check(c *libcni.RuntimeConf) error {
	return r.cni.CheckNetworkList(context.Background(), r.list, c)
}

func (r *runtime) del(c *libcni.RuntimeConf) error {
	return r.cni.DelNetworkList(context.Background(), r.list, c)
}

// gc names the containers that are valid.
func (r *runtime) gc(valid ...string) error {
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, id := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: "eth0"})
	}
	return r.cni.GCNetworkList(context.Background(), r.list, args)
}

func (r *runtime) status() error {
	return r.cni.GetStatusNetworkList(context.Background(), r.list)
}

// forget loses what libcni wrote down at ADD.
func (r *runtime) forget() error {
	return os.RemoveAll(r.cache + "/results")
}

// owners lists the pods that have rows, by their containers.
func (r *runtime) owners() []string {
	var out []string
	for _, line := range r.footprint(r.t) {
		if owner, ok := strings.CutPrefix(line, "iface "); ok {
			id, _, _ := strings.Cut(strings.TrimPrefix(owner, "container "), ",")
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// inNode is libcni's way to execute a plugin, in the node's network namespace, with every
// answer held to the protocol.
type inNode struct{ *netns.Node }

func (n inNode) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	e := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), e) != nil || e.Code == 0 {
		return nil, fmt.Errorf("%s: %w: stdout %q, stderr %q", path, err, stdout.Bytes(), stderr.Bytes())
	}
	return nil, e
}

func (inNode) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

func (inNode) Decode(text []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(text)
}

// code is that of an error that came through libcni, 0 if it has none.
func code(err error) uint {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// raw runs a verb that takes no pod, without libcni.
func (r *runtime) raw(verb, keys string) error {
	a := r.run(r.t, r.environ(verb, "", r.gone(), []string{"-CNI_IFNAME"}), r.config(r.t, keys))
	a.sane(r.t)
	if a.status == 0 {
		return nil
	}
	e := a.cniError(r.t)
	return types.NewError(e.Code, e.Msg, e.Details)
}

// addresses is an error unless host-local holds so many, of each family.
func (r *runtime) addresses(want int) error {
	for _, family := range []string{"10.*", "fd00*"} {
		if held, _ := filepath.Glob(r.DataDir + "/net/" + family); len(held) != want {
			return fmt.Errorf("addresses held: %v, want %d", held, want)
		}
	}
	return nil
}

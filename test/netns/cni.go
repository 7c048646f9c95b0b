// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
)

// Network is the `name` of every configuration made here.
const Network = "e2e"

// CNIError is the error JSON that a plugin left on stdout.
type CNIError struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details"`
}

func (e *CNIError) Error() string {
	return fmt.Sprintf("CNI error %d: %s: %s", e.Code, e.Msg, e.Details)
}

// Result is what ADD prints, as far as the tests look at it.
type Result struct {
	CNIVersion string      `json:"cniVersion"`
	Interfaces []Interface `json:"interfaces"`
	IPs        []struct {
		Address   netip.Prefix `json:"address"`
		Gateway   string       `json:"gateway"`
		Interface *int         `json:"interface"`
	} `json:"ips"`
	Routes []map[string]any `json:"routes"`
}

// Interface is one row of a Result; the host's side has no sandbox.
type Interface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	MTU     int    `json:"mtu"`
	Sandbox string `json:"sandbox"`
}

// Exec runs one verb of the configured plugin in the node, as a runtime would.
// env holds what the verb needs of CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME,
// and may hold another PATH. A failure is a *CNIError if the plugin kept to the
// protocol.
func (n *Node) Exec(verb string, env map[string]string, conf map[string]any) ([]byte, error) {
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	plugin, err := n.plugin(fmt.Sprint(conf["type"]))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_PATH="+n.Bin.Dir+":"+n.Bin.Ref)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := n.Start(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		ce := &CNIError{}
		if json.Unmarshal(stdout.Bytes(), ce) == nil && ce.Code != 0 {
			return nil, ce
		}
		return nil, fmt.Errorf("%s %s: %w: stdout %q, stderr %q", plugin, verb, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

func (n *Node) plugin(kind string) (string, error) {
	for _, dir := range []string{n.Bin.Dir, n.Bin.Ref} {
		path := filepath.Join(dir, kind)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no plugin %q in %s or %s (make build): %w", kind, n.Bin.Dir, n.Bin.Ref, errors.ErrUnsupported)
}

// Conf is the node's configuration: culvert as main plugin, host-local with the
// node's ranges of the given families, both if none is given.
func (n *Node) Conf(families ...int) map[string]any {
	if len(families) == 0 {
		families = []int{4, 6}
	}
	var ranges [][]map[string]any
	for _, f := range families {
		ranges = append(ranges, []map[string]any{{"subnet": n.PodRange(f).String()}})
	}
	return map[string]any{
		"cniVersion":   "1.1.0",
		"name":         Network,
		"type":         "culvert",
		"pinPath":      n.PinPath,
		"capabilities": map[string]any{"portMappings": true, "bandwidth": true},
		"ipam":         map[string]any{"type": "host-local", "dataDir": n.DataDir, "ranges": ranges},
	}
}

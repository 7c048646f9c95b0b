// SPDX-License-Identifier: Apache-2.0

// Package ipam runs the IPAM plugin that a configuration names. What it gets is the
// configuration as the runtime sent it, but for requests that a stronger one overrides.
package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// Plugin is an IPAM plugin, for one call of culvert. Errors are those of the plugin,
// with its codes, as *types.Error, or ErrNotFound or ErrNoAnswer.
type Plugin struct {
	Type  string // name of its binary
	Stdin []byte // configuration that culvert got
	Args  string // CNI_ARGS
	Path  string // CNI_PATH

	MostTime time.Duration // for a verb; 0: a minute
}

// ErrNotFound says that CNI_PATH holds no such plugin.
var ErrNotFound = errors.New("no such plugin in CNI_PATH")

// ErrNoAnswer says that the plugin was ended before it had answered: it took too long, or
// so did whoever called us.
var ErrNoAnswer = errors.New("no answer")

// Add allocates. A plugin that keeps count by container refuses one that has addresses
// already, as it has after an ADD that was killed: it is told to forget these, and asked
// once more.
func (p *Plugin) Add(ctx context.Context) (*current.Result, error) {
	out, err := p.exec(ctx, "ADD")
	if err != nil && ctx.Err() == nil && mayHold(err) && p.Del(ctx) == nil {
		out, err = p.exec(ctx, "ADD")
	}
	if err != nil {
		return nil, err
	}
	r, err := p.decode(out)
	if err != nil {
		return nil, fmt.Errorf("read result of IPAM plugin %s: %w", p.Type, err)
	}
	return r, nil
}

// Del frees.
func (p *Plugin) Del(ctx context.Context) error { return p.tell(ctx, "DEL") }

// Check checks that what Add gave is still allocated.
func (p *Plugin) Check(ctx context.Context) error { return p.tell(ctx, "CHECK") }

// Status asks whether Add would succeed.
func (p *Plugin) Status(ctx context.Context) error { return p.tell(ctx, "STATUS") }

// GC frees what no attachment of Stdin holds.
func (p *Plugin) GC(ctx context.Context) error { return p.tell(ctx, "GC") }

func (p *Plugin) tell(ctx context.Context, verb string) error {
	_, err := p.exec(ctx, verb)
	return err
}

// decode reads a result of any version. One that does not name its version has that of
// the configuration.
func (p *Plugin) decode(out []byte) (*current.Result, error) {
	var named struct{ CNIVersion string }
	if err := json.Unmarshal(out, &named); err != nil {
		return nil, err
	}
	if named.CNIVersion == "" {
		version, err := create.DecodeVersion(p.Stdin)
		if err != nil {
			return nil, err
		}
		if out, err = withVersion(out, version); err != nil {
			return nil, err
		}
		named.CNIVersion = version
	}
	r, err := create.Create(named.CNIVersion, out)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(r)
}

func withVersion(out []byte, version string) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(out, &fields); err != nil {
		return nil, err
	}
	if fields == nil { // "null"
		fields = map[string]json.RawMessage{}
	}
	quoted, err := json.Marshal(version)
	if err != nil {
		return nil, err
	}
	fields["cniVersion"] = quoted
	return json.Marshal(fields)
}

// mayHold tells a refusal that a forgotten allocation can be the reason of from those
// where it cannot: the version, the environment, the configuration, or "try again".
func mayHold(err error) bool {
	var e *types.Error
	other := []uint{
		types.ErrIncompatibleCNIVersion, types.ErrInvalidEnvironmentVariables, types.ErrDecodingFailure,
		types.ErrInvalidNetworkConfig, types.ErrTryAgainLater,
	}
	return errors.As(err, &e) && !slices.Contains(other, e.Code)
}

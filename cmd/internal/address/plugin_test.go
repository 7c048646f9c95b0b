// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-cni/culvert/cmd/internal/netconf"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/loader"
	"github.com/culvert-cni/culvert/maps"
)

// P10: what cannot be proved dead lives.
func TestAlive(t *testing.T) {
	const ours = "/proc/self/ns/net"
	ns, err := netdev.OpenNamespace(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, tt := range []struct {
		name string
		row  maps.Tenant
		want bool
	}{
		{"never known", maps.Tenant{NetnsPath: "/nowhere"}, true},
		{"there", maps.Tenant{NetnsPath: ours, Netns: ns.Inode}, true},
		{"gone", maps.Tenant{NetnsPath: "/nowhere", Netns: 7}, false},
		{"another one", maps.Tenant{NetnsPath: ours, Netns: ns.Inode + 1}, false},
		{"no namespace", maps.Tenant{NetnsPath: "/proc/self/status", Netns: 7}, false},
	} {
		if got := alive(tt.row); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// P2: each error has its code, and a text that says what to look at.
func TestCoded(t *testing.T) {
	fault := func(kind error) error { return loader.Fault{Kind: kind, What: "what", Remedy: "remedy"} }
	for _, tt := range []struct {
		err  error
		code uint
	}{
		{netconf.Bad("ipam.subnet", "x", "why"), types.ErrInvalidNetworkConfig},
		{fmt.Errorf("%w: x", ErrUndecodable), types.ErrDecodingFailure},
		{HeldError{addr("10.0.0.2"), owner("a")}, codeAddressHeld},
		{fmt.Errorf("%w: x", ErrNotHeld), codeNotHeld},
		{errors.Join(fmt.Errorf("%w in x", ErrNoneLeft)), codeNoneLeft},
		{fmt.Errorf("%w in x", ErrCooling), types.ErrTryAgainLater},
		{fault(loader.ErrLocked), types.ErrTryAgainLater},
		{fault(loader.ErrOtherLayout), types.ErrTryAgainLater},
		{fmt.Errorf("%w: x", maps.ErrFull), types.ErrTryAgainLater},
		{fault(loader.ErrNotBPFFS), types.ErrInvalidNetworkConfig},
		{fault(loader.ErrDenied), codeNode},
		{errors.New("else"), types.ErrInternal},
		{types.NewError(4, "own", ""), 4},
	} {
		if got := Coded(tt.err); got.Code != tt.code || got.Msg == "" || tt.code != types.ErrInternal && tt.code != 4 && !strings.Contains(got.Details, tt.err.Error()) {
			t.Errorf("%v: %+v", tt.err, got)
		}
	}
	for err, want := range map[error]uint{
		fault(loader.ErrNotBPFFS): types.ErrPluginNotAvailable,
		ErrNoneLeft:               types.ErrPluginNotAvailable,
		ErrNotHeld:                codeNotHeld,
	} {
		if got := Coded(unavailable(err)); got.Code != want {
			t.Errorf("STATUS of %v: %+v", err, got)
		}
	}
	if unavailable(nil) != nil || unavailable(fault(loader.ErrOtherLayout)) != nil {
		t.Error("STATUS of what the next ADD mends is an error")
	}
}

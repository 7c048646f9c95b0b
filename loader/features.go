// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	kernelfeatures "github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
	"github.com/culvert-cni/culvert/maps"
)

// conntrackKfunc is what the programs ask conntrack by; conntrackModule has it where it
// is not built in.
const (
	conntrackKfunc  = "bpf_skb_ct_lookup"
	conntrackModule = "nf_conntrack"
)

// shaperQdiscs are the qdiscs that hold limits; of the second one the programs need nothing,
// but a limit is held with less delay.
var shaperQdiscs = map[string]maps.Features{"tbf": maps.FeatureTBF, "fq_codel": maps.FeatureFqCodel}

// features are what the programs just loaded can rely on, and the shapers of limits.
func features(opts Options, coll *ebpf.Collection, conntrack bool) maps.Features {
	f := shapers(opts)
	if conntrack {
		f |= maps.FeatureConntrack
	}
	if hasTCX(coll.Programs[bpf.DatapathProgFromUplink]) {
		f |= maps.FeatureTCX
	}
	return f
}

// shapers asks for the qdiscs once a load: what the kernel has does not change until the
// next boot, which takes the pins along.
func shapers(opts Options) maps.Features {
	var f maps.Features
	for kind, feature := range shaperQdiscs {
		has, err := opts.Netlink.HasQdisc(kind)
		if err != nil {
			opts.Log.Warn("qdisc not looked for", "qdisc", kind, "error", err)
			has = kind == "tbf" // no reason to warn: ADD finds out
		}
		if has {
			f |= feature
		}
	}
	return f
}

// hasTCX attaches to a device that cannot be: the library asks the kernel then whether
// it knows tcx at all.
func hasTCX(prog *ebpf.Program) bool {
	_, err := link.AttachTCX(link.TCXOptions{
		Interface: math.MaxInt32, Program: prog, Attach: ebpf.AttachTCXIngress,
	})
	return errors.Is(err, unix.ENODEV)
}

// hasKfunc looks where the library looks when it resolves the weak symbol: in the BTF of
// the kernel and of the module. The programs learn the answer from a variable: "if
// (bpf_skb_ct_lookup)" in C loads the function's address, which cilium/ebpf v0.22 fills
// in as for a call; where the function is a module's, 6.1 and 6.12 refuse that
// ("BPF_LD_IMM64 uses reserved fields", seen).
func hasKfunc(kernel *btf.Cache) bool {
	var f *btf.Func
	if spec, err := kernel.Kernel(); err == nil && spec.TypeByName(conntrackKfunc, &f) == nil {
		return true
	}
	spec, err := kernel.Module(conntrackModule)
	return err == nil && spec.TypeByName(conntrackKfunc, &f) == nil
}

// hasProbeRead says whether programs may read kernel memory, which a kernel that is locked
// down to confidentiality denies. Without, a tunnel of the pod's own is counted without
// its inner headers.
func hasProbeRead() bool {
	return kernelfeatures.HaveProgramHelper(ebpf.SchedCLS, asm.FnProbeReadKernel) == nil
}

// conntrackAppeared says, of programs that were verified without conntrack, that its
// module has been loaded since.
func conntrackAppeared() bool { return exists("/sys/kernel/btf/" + conntrackModule) }

// loadConntrack loads the module where it is one, and says whether conntrack can be
// asked. Where not, the programs are verified without; the row of config says so, and
// STATUS.
func loadConntrack(kernel *btf.Cache, log *slog.Logger) bool {
	if hasKfunc(kernel) {
		return true
	}
	modprobe := "/sbin/modprobe"
	if b, err := os.ReadFile("/proc/sys/kernel/modprobe"); err == nil && strings.TrimSpace(string(b)) != "" {
		modprobe = strings.TrimSpace(string(b))
	}
	out, err := exec.Command(modprobe, conntrackModule).CombinedOutput()
	if err != nil {
		log.Warn("module not loaded", "module", conntrackModule, "error", err, "output", strings.TrimSpace(string(out)))
	}
	return hasKfunc(kernel)
}

// LeastKernel is the oldest release that the datapath runs on.
const LeastKernel = "6.1"

// checkKernel refuses kernels below the floor, where the verifier's complaint would
// explain nothing.
func checkKernel() error { return checkRelease(kernelRelease()) }

func checkRelease(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return nil
	}
	if major > 6 || major == 6 && minor >= 1 {
		return nil
	}
	return Fault{ErrKernel, fmt.Sprintf("kernel %s is too old", release), "run Linux " + LeastKernel + " or later"}
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

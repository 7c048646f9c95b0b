// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/bpf"
)

// What callers tell apart. Each comes as a Fault, whose text says more.
var (
	ErrNotLoaded   = errors.New("datapath not loaded")
	ErrNotBPFFS    = errors.New("not on a bpffs")
	ErrKernel      = errors.New("kernel lacks a feature")
	ErrLayout      = errors.New("pinned maps have another layout")
	ErrDenied      = errors.New("not permitted")
	ErrFewPorts    = errors.New("few ports are left")
	ErrBuild       = errors.New("another build is loaded")
	ErrOtherLayout = errors.New("tables are of another layout")
)

// Fault is something wrong with the machine, in one sentence, with what to do.
type Fault struct {
	Kind   error // one of the above
	What   string
	Remedy string
}

func (f Fault) Error() string {
	if f.Remedy == "" {
		return f.What
	}
	return f.What + ": " + f.Remedy
}

// Unwrap lets errors.Is find the kind.
func (f Fault) Unwrap() error { return f.Kind }

func notLoaded(pinPath string) Fault {
	return Fault{ErrNotLoaded, fmt.Sprintf("no datapath is loaded under %s", pinPath), "start a pod on this node, or give the pinPath of its configuration"}
}

func noTCX() Fault {
	return Fault{ErrKernel, fmt.Sprintf("kernel %s has no tcx", kernelRelease()), `set attach to "auto" or "clsact", or run Linux 6.6 or later`}
}

func noConntrack(release string) Fault {
	return Fault{ErrKernel, fmt.Sprintf("the programs cannot ask conntrack on kernel %s", release), "load the module nf_conntrack; the next pod's start reloads the programs"}
}

// SharedPorts says that masqueraded flows and the host's own sockets choose from the same
// ports.
func SharedPorts() Fault {
	return Fault{
		ErrFewPorts, "hardly any port is left for masquerading beside ip_local_port_range and ip_local_reserved_ports, so it shares the host's",
		"leave more of 20000-29999 and 61000-65535 out of these sysctls; the next pod's start reads them",
	}
}

// otherBuild says that the next pod's start replaces the programs.
func otherBuild(build uint64, current bool) []Fault {
	const remedy = "the next pod's start replaces them, or culvertctl reconcile"
	switch {
	case current:
		return nil
	case build == 0:
		return []Fault{{ErrBuild, "a load of the programs has not come to its end", remedy}}
	}
	return []Fault{{ErrBuild, fmt.Sprintf("the programs are of build %016x, not of this one (%016x)", build, bpf.Build()), remedy}}
}

// NoShaper says that bandwidth limits cannot be held.
func NoShaper() Fault {
	return Fault{
		ErrKernel, fmt.Sprintf("kernel %s has no qdisc tbf, so bandwidth limits cannot be held: a pod that asks for one is refused", kernelRelease()),
		"load the module sch_tbf (CONFIG_NET_SCH_TBF)",
	}
}

// checkBPFFS gives a fault if pins cannot be made at pinPath.
func checkBPFFS(pinPath string) error {
	if len(pinPath) == 0 || pinPath[0] != '/' {
		return Fault{ErrNotBPFFS, fmt.Sprintf("pinPath %q is no absolute path", pinPath), "use " + DefaultPinPath}
	}
	on, err := onBPFFS(pinPath)
	if err != nil {
		return explain(pinPath, err)
	}
	if !on && mountable(pinPath) {
		return Fault{ErrNotBPFFS, fmt.Sprintf("no bpffs is mounted at %s, where pinPath %s lies", bpffsRoot, pinPath), "the next pod's start mounts it, or culvertctl reconcile"}
	}
	if !on {
		return Fault{ErrNotBPFFS, fmt.Sprintf("pinPath %q is not on a bpffs", pinPath), "use a directory under /sys/fs/bpf, or mount a bpffs there"}
	}
	return nil
}

// explain makes sentences of what the kernel says; every other error passes.
func explain(pinPath string, err error) error {
	var fault Fault
	switch {
	case errors.As(err, &fault):
		return err
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return Fault{errors.Join(ErrLayout, err), fmt.Sprintf("the maps pinned under %s have another layout (%v)", pinPath, err), "stop the node's pods, remove the directory and start them again"}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !isVerifier(err):
		return Fault{errors.Join(ErrDenied, err), fmt.Sprintf("the kernel refused (%v)", err), "run as root with CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN"}
	case errors.Is(err, ebpf.ErrNotSupported):
		return Fault{errors.Join(ErrKernel, err), fmt.Sprintf("kernel %s lacks a feature (%v)", kernelRelease(), err), "run Linux 6.1 or later with CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_ACT and CONFIG_DEBUG_INFO_BTF"}
	}
	return err
}

// isVerifier tells the verifier's EACCES from the file system's.
func isVerifier(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v)
}

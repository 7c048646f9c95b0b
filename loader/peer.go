// SPDX-License-Identifier: Apache-2.0

package loader

import "github.com/cilium/ebpf/btf"

// CountsPeers says whether this kernel counts on a pod's device what bpf_redirect_peer
// hands to it. Linux 6.7 began to ("bpf: Fix dev's rx stats for bpf_redirect_peer
// traffic"), and stable releases of older ones took it; the same series brought the type
// that is looked for here.
func CountsPeers() bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var kind *btf.Enum
	return spec.TypeByName("netdev_stat_type", &kind) == nil
}

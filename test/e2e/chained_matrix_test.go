// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

// X3: the cells of docs/matrix.md hold for pods that another plugin has made, too.
func TestPrivilegedX3Matrix(t *testing.T) {
	t.Parallel()
	eachChain(t, func(t *testing.T, chain netns.Chain) {
		c := wireChained(t, matrixLayout, chain)
		tryMatrix(t, newMatrixStage(t, c.Net, culvertPod), "")
	})
}

// X3: with a bridge that masquerades, what calls the pod is seen as without. What the pod
// itself calls is seen as that plugin has it.
func TestPrivilegedX3MatrixMasqueraded(t *testing.T) {
	t.Parallel()
	c := wire(t, matrixLayout)
	c.Nodes[0].Chain = netns.AfterMasqueradingBridge
	s := newMatrixStage(t, c.Net, culvertPod)
	s.world = nil
	tryMatrix(t, s, "")
}

// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

// sources are the watches that a Cluster lives on.
type sources struct {
	nodes      *mirror[node]
	pods       *mirror[pod] // of this node
	namespaces *mirror[namespace]
	pools      *mirror[pool]
	blocks     *mirror[block]
	reflectors []*cache.Reflector
	dirty      chan struct{} // something has changed
}

func newSources(o Options) sources {
	dirty := make(chan struct{}, 1)
	changed := func() { signal(dirty) }
	s := sources{
		nodes:      newMirror(changed, sameNode, parseNode),
		pods:       newMirror(changed, samePod, parsePod),
		namespaces: newMirror(changed, sameNamespace, parseNamespace),
		pools:      newMirror(changed, samePool, parsePool),
		blocks:     newMirror(changed, sameBlock, parseBlock(o.NodeName)),
		dirty:      dirty,
	}
	core := o.Client.CoreV1().RESTClient()
	here := fields.OneTermEqualSelector("spec.nodeName", o.NodeName)
	s.follow(o.pace.retry, cache.NewListWatchFromClient(core, "nodes", metav1.NamespaceAll, fields.Everything()), &corev1.Node{}, s.nodes)
	s.follow(o.pace.retry, cache.NewListWatchFromClient(core, "pods", metav1.NamespaceAll, here), &corev1.Pod{}, s.pods)
	s.follow(o.pace.retry, cache.NewListWatchFromClient(core, "namespaces", metav1.NamespaceAll, fields.Everything()), &corev1.Namespace{}, s.namespaces)
	s.follow(o.pace.retry, o.Blocks.watch(poolsResource), &v1alpha1.IPPool{}, s.pools)
	s.follow(o.pace.retry, o.Blocks.watch(blocksResource), &v1alpha1.IPBlock{}, s.blocks)
	return s
}

// follow fills a store from a watch. The API server is asked again after 10 seconds at the
// latest: with as many agents as nodes, and each at its own moment, that is no herd.
func (s *sources) follow(retry time.Duration, from cache.ListerWatcher, kind runtime.Object, into cache.ReflectorStore) {
	s.reflectors = append(s.reflectors, cache.NewReflectorWithOptions(from, kind, into, cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: retry, Cap: 20 * retry, Steps: 10, Factor: 2, Jitter: 1},
	}))
}

// begin makes a pass over what is known now; false as long as something has not been listed.
func (c *Cluster) begin() (*pass, bool) {
	p := &pass{Cluster: c, now: c.Now(), seen: map[string]bool{}}
	p.next = p.now.Add(time.Hour)
	var synced [5]bool
	p.nodes, synced[0] = c.nodes.snapshot()
	p.pods, synced[1] = c.pods.snapshot()
	p.namespaces, synced[2] = c.namespaces.snapshot()
	p.pools, synced[3] = c.sources.pools.snapshot()
	blocks, ok := c.blocks.snapshot()
	synced[4] = ok
	for _, ok := range synced {
		if !ok {
			return nil, false
		}
	}
	p.index = newIndex(blocks)
	self, here := p.nodes[c.NodeName]
	if here {
		if len(self.addrs) == 0 {
			self.addrs = p.lastAddrs()
		}
		c.self = self
	} else if c.self.name == "" {
		c.Log.Warn("kubernetes: there is no Node of this name yet", slog.String("node", c.NodeName))
		return nil, false
	}
	p.here = here
	return p, true
}

// lastAddrs is for a Node that was made anew, which has no address until its kubelet tells: the
// node's pods are where they were.
func (p *pass) lastAddrs() []netip.Addr {
	if len(p.self.addrs) > 0 {
		return p.self.addrs
	}
	for _, b := range p.own() {
		if len(b.via) > 0 {
			return b.via
		}
	}
	return nil
}

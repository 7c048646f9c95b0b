// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Other nodes' pods. Where no next hop on a subnet of ours leads to them, packets go inside others,
 * by a tunnel device that all nodes share. Which node has an address, and whose packets may say
 * that they come from there, are the same rows of `remotes`.
 */
#pragma once

#include "cidr.h"
#include "pod.h"
#include "route.h"

/* Does a pod begin a connection to another node's, that the fast path may carry? By a device of
 * ours alone, since the answers must come back to us, and only if the FIB knows the way: else
 * the stack has all of it. TCP alone: of another protocol the answer may be in fragments, which
 * would be netfilter's, and that has not seen the request. Chained, the main plugin's policies rule.
 */
__noinline int remote_target(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	struct addr src, dst; /* a key has to be on this function's stack: 6.1 */
	struct remote *r;
	struct pod *pod;
	struct hop *hop;
	__u32 slot;

	if (!p || !f || !is_syn(p) || p->fragment || p->ttl <= 1 || !have_conntrack)
		return 0;
	src = p->tuple.src;
	dst = p->tuple.dst;
	r = cidr_row(&remotes, &dst);
	if (!r || !r->ifindex || pod_find(&dst))
		return 0;
	pod = pod_find(&src);
	if (!pod || (pod->flags & POD_CHAINED) || route_lookup(skb, p, f) != CONTINUE)
		return 0;
	slot = p->hop_slot;
	hop = bpf_map_lookup_elem(&hops, &slot);
	if (!hop || hop->ifindex != r->ifindex)
		return 0;
	f->action = FLOW_TO_WIRE;
	return 1;
}

#define TUNNEL_TTL 64

/* The row of an address that is another node's, by the tunnel. */
static __always_inline struct remote *tunnel_remote(const struct addr *a)
{
	struct remote *r = cidr_row(&remotes, a);

	return r && r->kind == REMOTE_TUNNEL ? r : NULL;
}

/* On a device without ARP the kernel writes its own address for both, and the far end takes
 * what bears its own, which is the same on every node, for an echo of itself.
 */
static __always_inline int tunnel_link(struct __sk_buff *skb)
{
	struct ethhdr *eth = pkt_at(skb, 0, sizeof(*eth));

	if (!eth)
		return -DROP_NO_REMOTE;
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	eth->h_source[ETH_ALEN - 1] ^= 1;
	return TO_STACK;
}

/* Tell the device where to. The outer packet has a checksum over IPv4 too: it costs its sender nothing
 * (the inner one's sum is part of it), and spares the far end from summing the inner packet once more.
 */
static __noinline int tunnel_send(struct __sk_buff *skb, const struct pkt *p)
{
	struct remote *r = tunnel_remote(&p->tuple.dst);
	struct bpf_tunnel_key key = { .tunnel_ttl = TUNNEL_TTL };
	__u64 flags = 0;

	if (!r || (p->version == 6 && addr_is_v4(&p->tuple.dst)) || tunnel_link(skb))
		return -DROP_NO_REMOTE;
	key.tunnel_id = r->vni;
	if (addr_is_v4(&r->endpoint)) {
		key.remote_ipv4 = bpf_ntohl(addr_to_v4(&r->endpoint));
		key.local_ipv4 = bpf_ntohl(addr_to_v4(&r->local));
	} else {
		flags = BPF_F_TUNINFO_IPV6;
		__builtin_memcpy(key.remote_ipv6, &r->endpoint, sizeof(struct addr));
		__builtin_memcpy(key.local_ipv6, &r->local, sizeof(struct addr));
	}
	return bpf_skb_set_tunnel_key(skb, &key, sizeof(key), flags) ? -DROP_NO_REMOTE : TO_STACK;
}

/* Has the packet come from the node that has its source? Who can reach the node's port of the
 * tunnel can say anything; what he cannot, where routers look at sources, is that he is that node.
 */
static __noinline int tunnel_source(struct __sk_buff *skb, const struct pkt *p)
{
	const struct addr *src = &p->tuple.src;
	struct bpf_tunnel_key key = {};
	struct addr from = {};
	struct remote *r;
	bool v4;

	if ((p->version == 6 && addr_is_v4(src)) || pod_find(src))
		return -DROP_TUNNEL_SOURCE;
	r = tunnel_remote(src);
	if (!r)
		return -DROP_TUNNEL_SOURCE;
	v4 = addr_is_v4(&r->endpoint);
	if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), v4 ? 0 : BPF_F_TUNINFO_IPV6))
		return -DROP_TUNNEL_SOURCE;
	if (v4)
		addr_v4(&from, bpf_htonl(key.remote_ipv4));
	else
		__builtin_memcpy(&from, key.remote_ipv6, sizeof(from));
	return key.tunnel_id == r->vni && addr_equal(&from, &r->endpoint) ? CONTINUE : -DROP_TUNNEL_SOURCE;
}

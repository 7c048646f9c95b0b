// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Pods: whose packet it is, and how one is reached. */
#pragma once

#include "parse.h"

#define ICMPV6_MLD_QUERY 130
#define ICMPV6_MLD_DONE 132
#define ICMPV6_RS 133
#define ICMPV6_NS 135
#define ICMPV6_NA 136
#define ICMPV6_MLD2_REPORT 143

static __always_inline struct pod *pod_find(const struct addr *a)
{
	return bpf_map_lookup_elem(&pods, a);
}

/* Neighbour discovery and MLD may come from the unspecified or a link-local address. */
static __always_inline bool is_link_talk(struct __sk_buff *skb, struct pkt *p)
{
	const struct addr *src = &p->tuple.src;

	if (p->version != 6 || p->tuple.proto != IPPROTO_ICMPV6)
		return false;
	if (!addr_is_zero(src) && !(src->ip[0] == 0xfe && (src->ip[1] & 0xc0) == 0x80))
		return false;
	return p->icmp_type == ICMPV6_NS || p->icmp_type == ICMPV6_NA || p->icmp_type == ICMPV6_RS ||
	       p->icmp_type == ICMPV6_MLD2_REPORT ||
	       (p->icmp_type >= ICMPV6_MLD_QUERY && p->icmp_type <= ICMPV6_MLD_DONE);
}

/* A container with several interfaces may send any of their addresses from any. */
static __noinline int same_netns(struct __sk_buff *skb, __u32 netns)
{
	struct iface_key key = { .ifindex = skb->ifindex };
	struct iface *iface = bpf_map_lookup_elem(&ifaces, &key);

	return iface && (__u32)iface->netns == netns;
}

/* The sending pod, or in *verdict what becomes of a packet that has none. */
static __always_inline struct pod *pod_of_sender(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	struct pod *pod = NULL;

	if (p->version == 4 || !addr_is_v4(&p->tuple.src))
		pod = pod_find(&p->tuple.src);
	*verdict = -DROP_LOOPBACK;
	if (unlikely(addr_is_loopback(&p->tuple.dst)))
		return NULL;
	if (likely(pod && pod->ifindex == skb->ifindex))
		return pod;
	if (pod && same_netns(skb, pod->netns))
		return pod;
	if (addr_is_loopback(&p->tuple.src))
		return NULL;
	*verdict = is_link_talk(skb, p) ? TO_STACK : -DROP_SOURCE;
	return NULL;
}

static __always_inline bool pod_too_small(struct __sk_buff *skb, struct pkt *p, const struct pod *pod)
{
	return wire_length(skb, p) > pod->mtu;
}

/* Hand the finished packet to the pod. redirect_peer (tc ingress only) saves the host
 * side of the veth, and with it the shaper there: a limited pod is reached through both.
 */
static __always_inline int pod_deliver(struct __sk_buff *skb, const struct pod *pod, bool at_ingress)
{
	struct ethhdr *eth = pkt_at(skb, 0, sizeof(*eth));

	if (!eth)
		return TO_STACK;
	__builtin_memcpy(eth->h_dest, pod->mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, pod->host_mac, ETH_ALEN);
	if (at_ingress && !(pod->flags & POD_LIMIT_INGRESS))
		return bpf_redirect_peer(pod->ifindex, 0);
	skb->tc_index = REDIRECT_STAMP;
	return bpf_redirect(pod->ifindex, 0);
}

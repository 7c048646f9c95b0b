// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Pods: who has an address, and how one is reached. */
#pragma once

#include "parse.h"

static __always_inline struct pod *pod_find(const struct addr *a)
{
	return bpf_map_lookup_elem(&pods, a);
}

static __always_inline __u64 generation_of(const struct addr *a)
{
	struct pod *pod = pod_find(a);

	return pod ? pod->generation : 0;
}

/* The pod on the link that the packet came by. */
static __always_inline struct pod *pod_on_link(struct __sk_buff *skb)
{
	struct iface_key key = { .ifindex = skb->ifindex };
	struct iface *iface = bpf_map_lookup_elem(&ifaces, &key);

	return iface ? pod_find(&iface->addrs[0]) : NULL;
}

/* Does the pod on this link have the address? */
static __always_inline bool is_on_link(struct __sk_buff *skb, const struct addr *a)
{
	struct pod *pod = pod_find(a);

	return pod && pod->ifindex == skb->ifindex;
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

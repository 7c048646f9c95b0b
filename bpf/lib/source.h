// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a pod may say of itself: packets from its own addresses and its own MAC address,
 * and nothing that would lead others astray (CVE-2020-10749). All else is dropped as
 * `source`, or as `loopback`. Chained, that is the main plugin's business, unless it is
 * asked for: what is not the pod's goes to the stack.
 */
#pragma once

#include "flow.h"
#include "nat.h"
#include "pod.h"

static __always_inline bool has_mac_of(struct __sk_buff *skb, const struct pod *pod)
{
	struct ethhdr *eth = pkt_at(skb, 0, sizeof(*eth));

	return eth && *(__u32 *)eth->h_source == *(__u32 *)pod->mac &&
	       *(__u16 *)(eth->h_source + 4) == *(__u16 *)(pod->mac + 4);
}

/* Is the pod on this link one that may say what it likes? Chained, its interface is in use
 * before its rows are there and after they went, and it may have no address at all.
 */
__noinline int is_unchecked(struct __sk_buff *skb)
{
	struct iface_key key = { .ifindex = skb->ifindex };
	struct iface *iface = bpf_map_lookup_elem(&ifaces, &key);
	struct pod *here;

	if (!iface)
		return 0;
	here = pod_find(&iface->addrs[0]);
	if (here)
		return !(here->flags & POD_SOURCE_CHECK);
	return (iface->flags & (POD_CHAINED | POD_SOURCE_CHECK)) == POD_CHAINED;
}

/* A container with several interfaces may send any of their addresses from any, but
 * with the MAC address of the one that it sends by.
 */
__noinline int same_netns(struct __sk_buff *skb, __u32 netns)
{
	struct iface_key key = { .ifindex = skb->ifindex };
	struct iface *iface = bpf_map_lookup_elem(&ifaces, &key);
	struct pod *here;

	if (!iface || (__u32)iface->netns != netns)
		return 0;
	here = pod_find(&iface->addrs[0]);
	return here && has_mac_of(skb, here);
}

/* Neighbour discovery and MLD may come from the unspecified or a link-local address. */
__noinline int is_link_talk(struct __sk_buff *skb, struct pkt *p)
{
	struct pod *here = pod_on_link(skb);
	const struct addr *src;

	if (!p || !here || !has_mac_of(skb, here))
		return 0;
	src = &p->tuple.src;
	if (p->version != 6 || p->tuple.proto != IPPROTO_ICMPV6 ||
	    (!addr_is_zero(src) && !addr_is_link_local6(src)))
		return 0;
	return p->icmp_type == ICMPV6_NS || p->icmp_type == ICMPV6_NA || p->icmp_type == ICMPV6_RS ||
	       p->icmp_type == ICMPV6_MLD2_REPORT ||
	       (p->icmp_type >= ICMPV6_MLD_QUERY && p->icmp_type <= ICMPV6_MLD_DONE);
}

/* Would it turn a listener's traffic away: a redirect, a router's advertisement, or a
 * neighbour's for an address that is another's?
 */
__noinline int leads_astray(struct __sk_buff *skb, struct pkt *p)
{
	struct addr target, gateway;
	void *at;

	if (!p || !is_icmp(p) || is_unchecked(skb))
		return 0;
	if (p->version == 4)
		return p->icmp_type == ICMP_REDIRECT;
	if (p->icmp_type == ICMPV6_RA || p->icmp_type == ICMPV6_REDIRECT)
		return 1;
	if (p->icmp_type != ICMPV6_NA)
		return 0;
	at = pkt_at(skb, p->l4 + 8, sizeof(target));
	if (!at)
		return 1;
	__builtin_memcpy(&target, at, sizeof(target));
	addr_gateway6(&gateway);
	if (addr_is_link_local6(&target))
		return addr_equal(&target, &gateway);
	return !is_on_link(skb, &target);
}

/* A UDP socket that is bound to no address, and SCTP always, answers the hidden caller
 * fe80::1 from the pod's link-local address: 1 if that is what this is, and it says the pod's own now.
 */
__noinline int own_answer(struct __sk_buff *skb, struct pkt *p)
{
	struct iface_key key = { .ifindex = skb->ifindex };
	struct iface *iface;
	struct addr gateway;
	struct flow f = {};
	struct tuple t;
	bool half;

	if (!p || p->version != 6 || !addr_is_link_local6(&p->tuple.src) ||
	    (p->tuple.proto != IPPROTO_UDP && p->tuple.proto != IPPROTO_SCTP))
		return 0;
	addr_gateway6(&gateway);
	iface = bpf_map_lookup_elem(&ifaces, &key);
	if (!iface || !addr_equal(&p->tuple.dst, &gateway))
		return 0;
	t = p->tuple;
	for (int i = 0; i < IFACE_ADDRS; i++) {
		t.src = iface->addrs[i];
		if (addr_is_v4(&t.src) || addr_is_zero(&t.src) || !flow_row(&t, &half))
			continue;
		f.src = t.src;
		f.dst = t.dst;
		f.sport = t.sport;
		f.dport = t.dport;
		if (translate(skb, p, &f, 0))
			return 0;
		p->tuple.src = t.src;
		return 1;
	}
	return 0;
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
	*verdict = -DROP_SOURCE;
	if (unlikely(p->rowless) && leads_astray(skb, p))
		return NULL;
	if (likely(pod && pod->ifindex == skb->ifindex))
		return !(pod->flags & POD_SOURCE_CHECK) || has_mac_of(skb, pod) ? pod : NULL;
	if (pod && same_netns(skb, pod->netns))
		return pod;
	if (!pod && own_answer(skb, p))
		return pod_find(&p->tuple.src);
	if (addr_is_loopback(&p->tuple.src))
		*verdict = -DROP_LOOPBACK;
	else if (is_unchecked(skb) || is_link_talk(skb, p))
		*verdict = TO_STACK;
	return NULL;
}

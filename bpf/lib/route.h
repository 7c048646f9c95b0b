// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The host's routing table: is an address local, and which way is out. */
#pragma once

#include "pod.h"

#define AF_INET 2
#define AF_INET6 10

static __always_inline void fib_request(struct __sk_buff *skb, struct bpf_fib_lookup *fib, const struct pkt *p,
					const struct addr *src, const struct addr *dst)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = skb->ifindex;
	fib->l4_protocol = p->tuple.proto;
	if (p->version == 4) {
		fib->family = AF_INET;
		fib->ipv4_src = addr_to_v4(src);
		fib->ipv4_dst = addr_to_v4(dst);
	} else {
		fib->family = AF_INET6;
		__builtin_memcpy(fib->ipv6_src, src, sizeof(struct addr));
		__builtin_memcpy(fib->ipv6_dst, dst, sizeof(struct addr));
	}
}

/* The FIB forwards to no local address, and says so. It says the same where it has no
 * route at all, which is why a family without a default route is given an unreachable
 * one (podnet), and of broadcast addresses, so ask for unicast first.
 */
__noinline int addr_is_local(struct __sk_buff *skb, struct pkt *p)
{
	struct bpf_fib_lookup fib;

	/* Of link-local addresses it says so too, whoever has them. */
	if (!p || !addr_is_unicast(&p->tuple.dst) || addr_is_link_local6(&p->tuple.src) ||
	    addr_is_link_local6(&p->tuple.dst))
		return 0;
	fib_request(skb, &fib, p, &p->tuple.src, &p->tuple.dst);
	return bpf_fib_lookup(skb, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* Into lo, as if it had never left. */
static __always_inline int deliver_to_host(struct __sk_buff *skb)
{
	struct ethhdr *eth = pkt_at(skb, 0, sizeof(*eth));

	if (!eth)
		return TO_STACK;
	__builtin_memset(eth, 0, 2 * ETH_ALEN);
	return bpf_redirect(LO_IFINDEX, BPF_F_INGRESS);
}

static __always_inline bool hop_is_for(const struct hop *hop, const struct pkt *p, const struct flow *f)
{
	return hop->asked == (__u32)(p->now >> 27) && hop->proto == p->tuple.proto && hop->ifindex &&
	       addr_equal(&hop->dst, &f->dst) && addr_equal(&hop->src, &f->src);
}

/* Ask the FIB, and keep what it says. */
static __noinline int route_ask(struct __sk_buff *skb, struct pkt *p, struct flow *f, struct hop *hop)
{
	struct bpf_fib_lookup fib;
	long rc;

	fib_request(skb, &fib, p, &f->src, &f->dst);
	fib.tot_len = wire_length(skb, p);
	hop->ifindex = 0;
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return TO_STACK;
	hop->src = f->src;
	hop->dst = f->dst;
	hop->proto = p->tuple.proto;
	__builtin_memcpy(&hop->via, fib.ipv6_dst, sizeof(hop->via));
	hop->family = fib.family;
	hop->ifindex = fib.ifindex;
	hop->mtu = fib.mtu_result;
	/* Without a neighbour the kernel leaves the MTU out: this is for once. */
	hop->asked = rc == BPF_FIB_LKUP_RET_SUCCESS ? p->now >> 27 : 0;
	return CONTINUE;
}

/* The way out for a packet that will say what f says: CONTINUE, or TO_STACK
 * where the stack must answer or find the way itself. A lookup costs 150-250 ns, half of
 * what the way back of a hostPort's packet does, so an answer holds for an eighth of a second, on the
 * processor that asked.
 */
static __noinline int route_lookup(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	const __u32 *src = (const __u32 *)f->src.ip, *dst = (const __u32 *)f->dst.ip;
	__u32 hash = src[3] * 31 + dst[3] + dst[2], slot;
	struct hop *hop;

	slot = (hash ^ hash >> 8 ^ hash >> 16 ^ hash >> 24) & 255;
	p->hop_slot = slot;
	hop = bpf_map_lookup_elem(&hops, &slot);
	if (!hop)
		return TO_STACK;
	if (likely(hop_is_for(hop, p, f)))
		return unlikely(wire_length(skb, p) > hop->mtu) ? TO_STACK : CONTINUE;
	return route_ask(skb, p, f, hop);
}

/* Out by the way that route_lookup has found. */
static __noinline int route_out(struct __sk_buff *skb, const struct pkt *p)
{
	struct bpf_redir_neigh nh;
	__u32 slot = p->hop_slot;
	struct hop *hop = bpf_map_lookup_elem(&hops, &slot);

	if (!hop)
		return TO_STACK;
	nh.nh_family = hop->family;
	__builtin_memcpy(nh.ipv6_nh, &hop->via, sizeof(nh.ipv6_nh));
	skb->tc_index = REDIRECT_STAMP;
	return bpf_redirect_neigh(hop->ifindex, &nh, sizeof(nh), 0);
}

/* Off by the way that the row says; `to` is the pod that FLOW_TO_POD leads to. */
static __always_inline int send(struct __sk_buff *skb, const struct pkt *p, int action, const struct pod *to,
				enum hook hook)
{
	if (action == FLOW_TO_POD && to)
		return pod_deliver(skb, to, hook != HOOK_FROM_HOST);
	if (action == FLOW_TO_WIRE)
		return route_out(skb, p);
	return action == FLOW_TO_HOST ? deliver_to_host(skb) : TO_STACK;
}

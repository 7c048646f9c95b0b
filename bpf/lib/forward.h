// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The fast path: the packet's live flow, or a new one, and what it says is done. */
#pragma once

#include "claim.h"
#include "fragment.h"
#include "hostport.h"
#include "nat.h"

/* A row counts while the pods at its ends are those that it was made for. */
static __always_inline struct flow *live_flow(struct pkt *p, __u64 generation, bool *half, struct pod **to)
{
	struct flow *f = flow_find(p, generation, half);

	*to = NULL;
	if (f && f->action == FLOW_TO_POD) {
		*to = pod_find(&f->dst);
		if (!*to || (*to)->generation != f->dst_generation)
			return NULL;
	}
	return f;
}

/* The pod's own address was called. Chained, the main plugin's policies rule that path. */
static __always_inline bool direct_target(const struct pkt *p, struct flow *f)
{
	struct pod *pod = pod_find(&p->tuple.dst);

	if (!pod || (pod->flags & POD_CHAINED) || p->fragment)
		return false;
	f->dst_generation = pod->generation;
	f->action = FLOW_TO_POD;
	return true;
}

/* A pod that calls itself, and a caller on 127.0.0.1 or ::1, would be answered past us:
 * they get an address that only the gateway's end of the veth has.
 */
static __always_inline void hide_caller(const struct pkt *p, struct flow *f)
{
	if (f->src_generation != f->dst_generation && !addr_is_loopback(&f->src))
		return;
	if (p->version == 4) {
		addr_v4(&f->src, bpf_htonl(0xa9fe0101)); /* 169.254.1.1 */
	} else {
		__builtin_memset(&f->src, 0, sizeof(f->src)); /* fe80::1 */
		f->src.ip[0] = 0xfe;
		f->src.ip[1] = 0x80;
		f->src.ip[15] = 1;
	}
}

static __noinline int open_flow(struct __sk_buff *skb, struct pkt *p, __u64 generation, enum hook hook)
{
	struct flow f;

	/* Who says on the wire that he is a pod of this node is not. */
	if (hook == HOOK_FROM_UPLINK && pod_find(&p->tuple.src))
		return TO_STACK;
	flow_request(&f, p, generation);
	if (hostport_target(skb, p, &f, hook == HOOK_FROM_HOST))
		hide_caller(p, &f);
	else if (hook == HOOK_FROM_HOST || !direct_target(p, &f))
		return TO_STACK;
	return flow_open(skb, p, &f,
			 hook == HOOK_FROM_POD	  ? FLOW_TO_POD :
			 hook == HOOK_FROM_UPLINK ? FLOW_TO_WIRE :
						    FLOW_TO_HOST);
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

/* Do what the row says; `to` is the pod it leads to, if any. Whatever the stack must
 * answer (too big, TTL at its end) it gets as it came, so nothing is written before that
 * is known.
 */
static __always_inline int carry(struct __sk_buff *skb, struct pkt *p, struct flow *f, bool half,
				 struct pod *to, enum hook hook)
{
	bool hop = hook != HOOK_FROM_HOST && (f->action == FLOW_TO_POD || f->action == FLOW_TO_WIRE);
	struct next_hop next;
	int action = f->action;

	if (hop && p->ttl <= 1)
		return TO_STACK;
	if (to && pod_too_small(skb, p, to))
		return hook == HOOK_FROM_HOST ? -DROP_TOO_BIG : TO_STACK;
	if (action == FLOW_TO_WIRE && route_lookup(skb, p, f, &next) != CONTINUE)
		return TO_STACK;

	f = flow_touch(p, f, half);
	if (!f)
		return -DROP_NO_ROOM;
	if (f->flags & FLOW_TRANSLATE ? translate(skb, p, f, hop) : hop && take_hop(skb, p))
		return TO_STACK;

	if (to)
		return pod_deliver(skb, to, hook != HOOK_FROM_HOST);
	if (action == FLOW_TO_WIRE)
		return route_out(skb, &next);
	return action == FLOW_TO_HOST ? deliver_to_host(skb) : TO_STACK;
}

/* `generation` is the sending pod's, 0 if none sends. */
static __always_inline int forward(struct __sk_buff *skb, struct pkt *p, __u64 generation, enum hook hook)
{
	struct pod *to;
	struct flow *f;
	bool half;
	int verdict;

	if (p->rowless || (p->fragment == LATER_FRAGMENT && !fragment_restore(p)))
		return TO_STACK;
	f = live_flow(p, generation, &half, &to);
	if (unlikely(!f)) {
		verdict = open_flow(skb, p, generation, hook);
		if (verdict != FLOW_OPENED)
			return verdict;
		f = live_flow(p, generation, &half, &to);
		if (!f)
			return -DROP_NO_ROOM;
	}
	if (unlikely(p->fragment)) {
		if (!(f->flags & FLOW_TRANSLATE))
			return TO_STACK;
		if (p->fragment == FIRST_FRAGMENT)
			fragment_record(p);
	}
	return carry(skb, p, f, half, to, hook);
}

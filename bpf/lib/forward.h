// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The fast path: the packet's live flow, or a new one, and what it says is done. */
#pragma once

#include "icmp.h"
#include "masquerade.h"
#include "remote.h"

/* A row counts while the pods at its ends are those that it was made for. */
static __always_inline struct flow *live_flow(struct flow *f, struct pod **to)
{
	*to = NULL;
	if (f && f->action == FLOW_TO_POD) {
		*to = pod_find(&f->dst);
		if (!*to || (*to)->generation != f->dst_generation)
			return NULL;
	} else if (f && f->flags & FLOW_MASQUERADE && generation_of(&f->dst) != f->dst_generation) {
		return NULL;
	}
	return f;
}

/* The pod's own address was called. Chained, the main plugin's policies rule that path. */
static __always_inline bool direct_target(struct pkt *p, struct flow *f)
{
	struct pod *pod = pod_find(&p->tuple.dst);

	if (!pod || (pod->flags & POD_CHAINED))
		return false;
	if (unlikely(p->fragment)) {
		if (p->fragment == FIRST_FRAGMENT && (pod->flags & POD_MASQUERADE))
			note_stack_request(p);
		return false;
	}
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
	if (p->version == 4)
		addr_gateway4(&f->src);
	else
		addr_gateway6(&f->src);
}

static __always_inline int open_called(struct __sk_buff *skb, struct pkt *p, __u64 generation, enum hook hook)
{
	struct flow f;

	/* Who says on the wire that he is a pod of this node is not. */
	if (hook == HOOK_FROM_UPLINK && pod_find(&p->tuple.src))
		return TO_STACK;
	if (!addr_is_unicast(&p->tuple.src)) /* a martian, which the stack drops */
		return TO_STACK;
	flow_request(&f, p, generation);
	/* Most that a pod calls on the node are pods; a pod's address is none of the node's. */
	if (hook == HOOK_FROM_POD && !p->fragment && direct_target(p, &f))
		;
	else if (hostport_target(skb, p, &f, hook == HOOK_FROM_HOST))
		hide_caller(p, &f);
	else if (hook == HOOK_FROM_HOST || !direct_target(p, &f)) {
		if (hook != HOOK_FROM_POD || !is_syn(p) || !remote_target(skb, p, &f))
			return TO_STACK;
	}
	return flow_open(skb, p, &f,
			 hook == HOOK_FROM_POD	  ? FLOW_TO_POD :
			 hook == HOOK_FROM_UPLINK ? FLOW_TO_WIRE :
						    FLOW_TO_HOST);
}

static __noinline int open_flow(struct __sk_buff *skb, struct pkt *p, __u64 generation, enum hook hook)
{
	int verdict = open_called(skb, p, generation, hook);

	if (unlikely(p->closed))
		forget_closed(p);
	return verdict;
}

/* The stack says what is wrong with the packet (too big, TTL at its end), which it gets as
 * it came. But a hostPort's would end on the node as it came: that one is translated, and
 * so is the answer, in to_uplink or to_pod.
 */
static __always_inline int stack_answers(struct __sk_buff *skb, struct pkt *p, struct flow *f)
{
	if ((f->flags & (FLOW_HOSTPORT | FLOW_REPLY)) == FLOW_HOSTPORT)
		translate(skb, p, f, 0);
	return TO_STACK;
}

/* Do what the row says; `to` is the pod it leads to, if any. */
static __always_inline int carry(struct __sk_buff *skb, struct pkt *p, struct flow *f, bool half,
				 struct pod *to, enum hook hook)
{
	bool hop = hook != HOOK_FROM_HOST && (f->action == FLOW_TO_POD || f->action == FLOW_TO_WIRE);
	bool changes = f->flags & FLOW_TRANSLATE;
	int action = f->action;

	if (hop && unlikely(p->ttl <= 1)) {
		if (!to || f->src_generation != f->dst_generation)
			return stack_answers(skb, p, f);
		hop = false; /* a pod that calls itself has no router on the way */
	}
	if (to && unlikely(pod_too_small(skb, p, to)))
		return hook == HOOK_FROM_HOST ? -DROP_TOO_BIG : stack_answers(skb, p, f);
	if (action == FLOW_TO_WIRE && route_lookup(skb, p, f) != CONTINUE)
		return TO_STACK;

	f = flow_touch(p, f, half, changes);
	if (!f)
		return -DROP_NO_ROOM;
	if (changes ? translate(skb, p, f, hop) : hop && take_hop(skb, p))
		return TO_STACK;

	return send(skb, p, action, to, hook);
}

/* `generation` is the sending pod's, 0 if none sends. */
static __always_inline int forward(struct __sk_buff *skb, struct pkt *p, __u64 generation, enum hook hook)
{
	struct pod *to;
	struct flow *f;
	bool half;
	int verdict;

	if (unlikely(p->rowless))
		return is_icmp_error(p) ? carry_error(skb, p, hook) : TO_STACK;
	if (p->fragment == LATER_FRAGMENT && !fragment_restore(p, SIDE_FAST))
		return TO_STACK;
	f = live_flow(flow_find(p, generation, &half), &to);
	if (unlikely(!f)) {
		verdict = open_flow(skb, p, generation, hook);
		if (verdict != FLOW_OPENED)
			return verdict;
		f = live_flow(flow_begun(p, &half), &to);
		if (!f)
			return -DROP_NO_ROOM;
	}
	if (unlikely(p->fragment)) {
		if (!(f->flags & FLOW_TRANSLATE))
			return TO_STACK;
		if (p->fragment == FIRST_FRAGMENT && !fragment_begin(p, SIDE_FAST))
			return -DROP_FRAGMENT_ORDER;
	}
	return carry(skb, p, f, half, to, hook);
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packets that the stack sends: their replies must come back to it, whatever the fast
 * path carries between the same two ports.
 */
#pragma once

#include "forward.h"

static __always_inline __u64 generation_of(const struct addr *a)
{
	struct pod *pod = pod_find(a);

	return pod ? pod->generation : 0;
}

/* A row that sends the reply up the stack as it is. */
static __noinline int leave_to_stack(struct pkt *p, struct tuple *reply)
{
	struct flow f = {
		.src = reply->src,
		.dst = reply->dst,
		.sport = reply->sport,
		.dport = reply->dport,
		.action = FLOW_TO_STACK,
		.flags = FLOW_REPLY,
		.src_generation = generation_of(&reply->src),
		.dst_generation = generation_of(&reply->dst),
		.seen_ns = p->now,
	};

	flow_begin(reply, &f);
	return TO_STACK;
}

/* A SYN whose reply tuple a fast flow holds gets another client port, as it would from
 * the fast path.
 */
static __noinline int stack_syn(struct __sk_buff *skb, struct pkt *p)
{
	struct tuple reply;
	struct flow f, *row;
	bool half;

	tuple_reverse(&reply, &p->tuple);
	row = flow_row(&reply, &half);
	if (!row)
		return TO_STACK;
	flow_request(&f, p, generation_of(&p->tuple.src));
	f.dst_generation = generation_of(&p->tuple.dst);
	f.action = FLOW_TO_STACK;
	if (!p->hint && (row->action == FLOW_TO_STACK || row->src_generation != f.dst_generation ||
			 row->dst_generation != f.src_generation || flow_expired(row, p, half)))
		return TO_STACK;
	f.sport = p->hint ? p->hint : random_port();
	f.flags = FLOW_TRANSLATE;
	if (claim_reply(skb, p, &f, FLOW_TO_STACK) != CLAIM_DONE)
		return -DROP_PORTS_EXHAUSTED;
	flow_begin(&p->tuple, &f);
	return FLOW_OPENED;
}

static __always_inline int stack_tcp(struct __sk_buff *skb, struct pkt *p)
{
	struct flow *f;
	bool half;
	int verdict;

	p->tuple.side = SIDE_STACK;
	f = flow_row(&p->tuple, &half);
	if (f && (f->dst_generation != generation_of(&p->tuple.dst) || flow_expired(f, p, half)))
		f = NULL;
	if (f && is_syn(p) && flow_closed(f)) {
		flow_forget(p, f);
		f = NULL;
	}
	if (!f) {
		if (!is_syn(p))
			return TO_STACK;
		verdict = stack_syn(skb, p);
		if (verdict != FLOW_OPENED)
			return verdict;
		f = flow_row(&p->tuple, &half);
		if (!f)
			return -DROP_NO_ROOM;
	}
	f = flow_touch(p, f, half);
	if (f)
		translate(skb, p, f, false);
	return TO_STACK;
}

/* A datagram takes the tuple over: the fast flow opens again, with another port, when
 * its client next speaks.
 */
static __noinline int stack_udp(struct pkt *p)
{
	struct tuple reply;
	struct flow *f;
	bool half;

	tuple_reverse(&reply, &p->tuple);
	f = flow_row(&reply, &half);
	if (likely(!f || f->action == FLOW_TO_STACK))
		return TO_STACK;
	flow_delete(&reply, f);
	return TO_STACK;
}

/* conntrack cannot be asked about other protocols, so the reply is marked here. */
static __noinline int stack_other(struct pkt *p)
{
	struct tuple reply;
	struct flow *f;
	bool half;

	tuple_reverse(&reply, &p->tuple);
	f = flow_row(&reply, &half);
	if (f && !flow_expired(f, p, half)) {
		f->seen_ns = p->now;
		return TO_STACK;
	}
	return leave_to_stack(p, &reply);
}

/* to_pod: on the way from the stack to a pod. */
static __always_inline int stack_to_pod(struct __sk_buff *skb, struct pkt *p)
{
	if (p->fragment == LATER_FRAGMENT || p->rowless || is_icmp(p))
		return TO_STACK;
	if (p->tuple.proto == IPPROTO_TCP)
		return stack_tcp(skb, p);
	if (p->tuple.proto == IPPROTO_UDP)
		return stack_udp(p);
	return stack_other(p);
}

/* to_uplink: a socket of the host, or netfilter's masquerade, may have the number of a
 * hostPort for its source port; what comes back is then no call of the hostPort.
 */
static __always_inline int stack_to_wire(struct pkt *p)
{
	struct tuple reply;
	struct flow *f;
	bool half;

	if (p->fragment == LATER_FRAGMENT || p->rowless || (p->tuple.proto != IPPROTO_UDP && !is_syn(p)))
		return TO_STACK;
	if (!hostport_row(&p->tuple.src, p->tuple.sport, p->tuple.proto))
		return TO_STACK;
	tuple_reverse(&reply, &p->tuple);
	f = flow_row(&reply, &half);
	if (!f || flow_expired(f, p, half))
		return leave_to_stack(p, &reply);
	if (f->action == FLOW_TO_STACK)
		f->seen_ns = p->now;
	return TO_STACK;
}

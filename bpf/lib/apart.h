// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Connections to another node's pod, of which the fast path carries some and the stack those that
 * netfilter translates: calls of a service. From one port of the client's they would be one and the
 * same to the pod, and to who sees the answers.
 */
#pragma once

#include "cidr.h"
#include "claim.h"

/* Can the packet be of such a connection? */
static __always_inline bool is_far_call(const struct pkt *p)
{
	return p->tuple.proto == IPPROTO_TCP && cidr_has(&remotes, &p->tuple.dst);
}

/* Has netfilter made the packet what it says, a service's call of another node's pod, while the
 * fast path carries a connection between the same two ports?
 */
__noinline int is_translated(struct __sk_buff *skb, struct pkt *p)
{
	struct tuple reply;

	if (!p)
		return 0;
	tuple_reverse(&reply, &p->tuple);
	return ct_lookup(skb, &reply) == CT_REPLY && ct_lookup(skb, &p->tuple) != CT_REQUEST;
}

/* Does a connection that netfilter translates meet another one's claim: a fast one's, or that of one
 * which was given this port here?
 */
static __noinline int apart_meets(struct __sk_buff *skb, struct pkt *p, __u64 generation)
{
	struct tuple reply;
	struct flow *row;
	bool half;

	if (!is_far_call(p))
		return 0;
	tuple_reverse(&reply, &p->tuple);
	row = flow_row(&reply, &half);
	return row && !leads_back(row, p) && row->dst_generation == generation && !flow_expired(row, p, half) &&
	       is_translated(skb, p);
}

/* It gets another client port then, as it would from the fast path (stack_open does so on the way to
 * this node's pods). FLOW_OPENED, CONTINUE or a drop.
 */
static __noinline int apart_open(struct __sk_buff *skb, struct pkt *p, __u64 generation)
{
	struct flow f;

	if (!apart_meets(skb, p, generation))
		return CONTINUE;
	flow_request(&f, p, generation);
	f.action = FLOW_TO_STACK;
	f.flags = FLOW_MASQUERADE | FLOW_TRANSLATE;
	f.sport = p->hint ? p->hint : random_port();
	if (!is_syn(p))
		f.state = FLOW_TCP_MID;
	if (claim_reply(skb, p, &f, FLOW_TO_STACK) != CLAIM_DONE)
		return -DROP_PORTS_EXHAUSTED;
	flow_begin(&p->tuple, &f, p->lasting);
	return FLOW_OPENED;
}

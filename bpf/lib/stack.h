// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packets that the stack sends: their replies must come back to it, whatever the fast
 * path carries between the same two ports.
 */
#pragma once

#include "forward.h"

/* A fragment, which the fast path left to the stack, of the very flow that holds the reply
 * tuple: direct, and as it is in netfilter's eyes too.
 */
static __always_inline bool is_piece_of(struct __sk_buff *skb, struct pkt *p, const struct flow *row,
					struct tuple *reply)
{
	if (!p->fragment || (row->flags & FLOW_TRANSLATE))
		return false;
	return ct_lookup(skb, reply) != CT_REPLY || ct_lookup(skb, &p->tuple) == CT_REQUEST;
}

/* The answer of another node's pod that came by a device which is none of ours. */
static __always_inline bool is_far_answer(const struct flow *row)
{
	return row->action == FLOW_TO_WIRE && !(row->flags & FLOW_REPLY);
}

/* A packet whose reply tuple a fast flow holds gets another client port, as it would from
 * the fast path.
 */
static __noinline int stack_open(struct __sk_buff *skb, struct pkt *p)
{
	struct tuple reply;
	struct flow f, *row;
	bool half;

	tuple_reverse(&reply, &p->tuple);
	row = flow_row(&reply, &half);
	if (!row || is_far_answer(row) || is_piece_of(skb, p, row, &reply))
		return TO_STACK;
	flow_request(&f, p, generation_of(&p->tuple.src));
	f.dst_generation = generation_of(&p->tuple.dst);
	f.action = FLOW_TO_STACK;
	if (!p->hint && (leads_back(row, p) || row->src_generation != f.dst_generation ||
			 row->dst_generation != f.src_generation || flow_expired(row, p, half)))
		return TO_STACK;
	f.sport = p->hint ? p->hint : random_port();
	f.flags = FLOW_TRANSLATE;
	if (p->tuple.proto == IPPROTO_TCP && !is_syn(p))
		f.state = FLOW_TCP_MID;
	if (claim_reply(skb, p, &f, FLOW_TO_STACK) != CLAIM_DONE)
		return -DROP_PORTS_EXHAUSTED;
	flow_begin(&p->tuple, &f, p->lasting);
	return FLOW_OPENED;
}

/* TCP and UDP. A segment in mid-stream that has no row and meets a fast flow has lost the
 * row that gave it another port: with a new one it is nobody's in the pod, and reset.
 */
static __always_inline int stack_ports(struct __sk_buff *skb, struct pkt *p)
{
	struct flow *f;
	bool half;
	int verdict;

	p->tuple.side = SIDE_STACK;
	f = flow_of_packet(p, &half);
	if (f && (f->dst_generation != generation_of(&p->tuple.dst) || flow_expired(f, p, half)))
		f = NULL;
	if (f && is_syn(p) && flow_closed(f)) {
		flow_forget(p, f);
		f = NULL;
	}
	if (!f) {
		if (p->tuple.proto == IPPROTO_TCP && !is_syn(p) && (p->tcp_flags & (TCP_SYN | TCP_RST)))
			return TO_STACK;
		verdict = stack_open(skb, p);
		if (verdict != FLOW_OPENED)
			return verdict;
		f = flow_begun(p, &half);
		if (!f)
			return -DROP_NO_ROOM;
	}
	f = flow_touch(p, f, half, true);
	if (f)
		translate(skb, p, f, false);
	return TO_STACK;
}

/* conntrack cannot be asked about other protocols, so the reply is marked here; but not
 * that of an answer, to what was masqueraded.
 */
static __noinline int stack_other(struct pkt *p)
{
	struct tuple reply;
	struct flow *f;
	bool half;

	tuple_reverse(&reply, &p->tuple);
	reply.side = SIDE_WIRE;
	f = flow_row(&reply, &half);
	if (f && !flow_expired(f, p, half))
		return TO_STACK;
	reply.side = SIDE_FAST;
	return leave_to_stack(p, &reply);
}

/* to_pod: on the way from the stack to a pod. */
static __always_inline int stack_to_pod(struct __sk_buff *skb, struct pkt *p)
{
	if (is_icmp(p))
		return is_icmp_error(p) ? carry_error(skb, p, HOOK_TO_POD) : TO_STACK;
	if (p->fragment == LATER_FRAGMENT || p->rowless)
		return TO_STACK;
	if (p->tuple.proto == IPPROTO_TCP || p->tuple.proto == IPPROTO_UDP)
		return stack_ports(skb, p);
	return stack_other(p);
}

/* What the stack sends of a pod's. If the fast path has its flow, it is an answer that had
 * to be cut or that only the stack knows the way for, and says what it would have said.
 * CONTINUE: it has not.
 */
static __noinline int late_answer(struct __sk_buff *skb, struct pkt *p, __u64 generation)
{
	struct flow *f;
	bool half;

	fragment_leave(p);
	f = flow_row(&p->tuple, &half);
	if (!f || f->src_generation != generation || flow_expired(f, p, half))
		return CONTINUE;
	if (f->action == FLOW_TO_WIRE && !(f->flags & FLOW_REPLY) && is_translated(skb, p))
		return CONTINUE;
	if (f->action != FLOW_TO_WIRE || !(f->flags & FLOW_TRANSLATE) || ct_lookup(skb, &p->tuple) == CT_REPLY)
		return TO_STACK;
	if (p->orphaned)
		return -DROP_FRAGMENT_ORDER;
	translate(skb, p, f, 0);
	return TO_STACK;
}

/* A socket of the host, or netfilter's masquerade, may have the number of a hostPort for
 * its source port; what comes back is then no call of the hostPort.
 */
static __noinline int guard_hostport(struct pkt *p)
{
	struct tuple reply;

	if (p->tuple.proto != IPPROTO_UDP && !is_syn(p))
		return TO_STACK;
	if (!hostport_row(&p->tuple.src, p->tuple.sport, p->tuple.proto))
		return TO_STACK;
	tuple_reverse(&reply, &p->tuple);
	return leave_to_stack(p, &reply);
}

/* On the way from the stack to the wire, or into a tunnel, where pods are not masqueraded, but
 * strangers are: a drop, or nothing to be said.
 */
static __always_inline int stack_to_wire(struct __sk_buff *skb, struct pkt *p, enum hook hook)
{
	bool masks = hook == HOOK_TO_UPLINK, may_change;
	struct pod *pod;
	__u64 generation = 0;
	int verdict;

	if (p->rowless)
		return is_icmp_error(p) ? carry_error(skb, p, hook) : TO_STACK;
	pod = pod_find(&p->tuple.src);
	if (pod) {
		generation = pod->generation;
		verdict = late_answer(skb, p, generation);
		if (verdict != CONTINUE)
			return verdict;
		masks &= !!(pod->flags & POD_MASQUERADE);
		may_change = masks || is_far_call(p);
	} else if (hook == HOOK_TO_TUNNEL && is_strange(skb, p)) {
		p->strange = 1;
		fragment_leave(p);
		may_change = true;
	} else if (p->fragment == LATER_FRAGMENT) {
		return TO_STACK; /* of the host's packets only ports change */
	} else {
		may_change = p->tuple.sport && pool_holds(p->tuple.sport);
	}
	if (may_change) {
		verdict = masquerade(skb, p, generation, masks);
		if (verdict != CONTINUE)
			return verdict;
	}
	p->tuple.side = SIDE_FAST;
	return pod ? TO_STACK : guard_hostport(p);
}

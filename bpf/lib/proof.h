// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a packet tells of its flow: that it goes on, that it ends, that the peer of a
 * half-open one is there.
 */
#pragma once

#include "flow.h"

/* How far a client's acknowledgement may be from the pod's last sequence number. After
 * a SYN it is just ahead; in mid-stream it trails by what is in flight.
 */
#define PROOF_WINDOW 65536
#define PROOF_WINDOW_MID (1 << 24)

/* The other half of a half-open flow, if it is that. */
static __always_inline struct flow *half_peer(const struct flow *f, __u8 proto)
{
	struct tuple peer;
	struct flow *other;

	flow_peer_key(&peer, f, proto);
	if (likely(!flow_reopened(f)))
		return bpf_map_lookup_elem(&halfopen, &peer);
	other = bpf_map_lookup_elem(&flows, &peer);
	return other && flow_reopened(other) ? other : NULL;
}

/* Both rows of a half-open flow become lasting ones. Written before they are deleted,
 * so that whoever claims a tuple sees it in one table or the other.
 */
static __noinline int flow_promote(struct tuple *key, struct flow *f)
{
	struct flow *other = half_peer(f, key->proto);
	struct tuple peer;

	if (!other)
		return 0; /* a row of the stack's has no other half */
	if (flow_reopened(f)) {
		other->state &= ~FLOW_REOPENED;
		f->state &= ~FLOW_REOPENED;
		return 1;
	}
	flow_peer_key(&peer, f, key->proto);
	bpf_map_update_elem(&flows, &peer, other, BPF_ANY);
	bpf_map_update_elem(&flows, key, f, BPF_ANY);
	bpf_map_delete_elem(&halfopen, &peer);
	bpf_map_delete_elem(&halfopen, key);
	return 1;
}

static __always_inline bool acknowledges(const struct pkt *p, const struct flow *f)
{
	__u32 ahead = p->tcp_ack - f->tcp_seq;

	if (f->state & FLOW_TCP_MID)
		return ahead + PROOF_WINDOW_MID <= 2 * PROOF_WINDOW_MID;
	return ahead <= PROOF_WINDOW;
}

/* Has the packet proved that the other side is there? Of TCP, the client acknowledges
 * what the pod sent; else it speaks again after an answer. (An answer alone is what a flood
 * from forged addresses gets too.)
 */
__noinline int flow_proved(struct pkt *p, struct flow *f)
{
	struct flow *request;

	if (!p || !f)
		return 0;
	if (p->tuple.proto == IPPROTO_TCP && p->fragment == LATER_FRAGMENT) /* has no sequence numbers */
		return 0;
	if (f->flags & FLOW_REPLY) {
		request = half_peer(f, p->tuple.proto);
		if (request && !(p->tcp_flags & TCP_RST)) {
			request->tcp_seq = p->tcp_seq;
			request->state |= FLOW_ANSWERED;
		}
		return 0;
	}
	if (!(f->state & FLOW_ANSWERED))
		return 0;
	if (p->tuple.proto != IPPROTO_TCP)
		return 1;
	return (p->tcp_flags & TCP_ACK) && !(p->tcp_flags & TCP_RST) && acknowledges(p, f);
}

/* Keep both rows alive: a flow that speaks in one direction only lives in both. */
__noinline int flow_refresh(struct pkt *p, struct flow *f)
{
	struct tuple peer;
	struct flow *other;
	bool half;

	if (!p || !f)
		return 0;
	f->seen_ns = p->now;
	flow_peer_key(&peer, f, p->tuple.proto);
	other = flow_row(&peer, &half);
	if (other)
		other->seen_ns = p->now;
	return 0;
}

__noinline int flow_close(struct pkt *p, struct flow *f)
{
	struct tuple peer;
	struct flow *other;
	bool half;

	if (!p || !f)
		return 0;
	flow_peer_key(&peer, f, p->tuple.proto);
	other = flow_row(&peer, &half);
	f->seen_ns = p->now;
	if (p->tcp_flags & TCP_RST) {
		f->state |= FLOW_RESET;
		if (other)
			other->state |= FLOW_RESET;
	} else {
		f->state |= FLOW_FIN_SELF;
		if (other)
			other->state |= FLOW_FIN_PEER;
	}
	if (other)
		other->seen_ns = p->now;
	return 0;
}

/* Note what the packet says of its flow. f may have moved, and is to be found again if the caller
 * has use for it.
 */
static __always_inline struct flow *flow_touch(struct pkt *p, struct flow *f, bool half, bool use)
{
	if (unlikely(p->now > f->seen_ns + NSEC_PER_SEC))
		flow_refresh(p, f);
	if (unlikely(p->tcp_flags & (TCP_FIN | TCP_RST)))
		flow_close(p, f);
	if (unlikely(half) && flow_proved(p, f) && flow_promote(&p->tuple, f) && use && !p->lasting)
		f = bpf_map_lookup_elem(&flows, &p->tuple);
	return f;
}

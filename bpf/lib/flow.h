// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Flow rows: what the fast path may carry. A flow has two, the request's and the
 * reply's; they begin in `halfopen`, a small table that a flood may churn, and move to
 * `flows` when the peer has proved to be there. Expiry is lazy, nothing sweeps.
 */
#pragma once

#include "parse.h"

#define FLOW_CLOSED_BY_FIN (FLOW_FIN_SELF | FLOW_FIN_PEER)
/* How far a client's acknowledgement may be from the pod's last sequence number. After
 * a SYN it is just ahead; in mid-stream it trails by what is in flight.
 */
#define PROOF_WINDOW 65536
#define PROOF_WINDOW_MID (1 << 24)

static __always_inline bool flow_closed(const struct flow *f)
{
	return (f->state & FLOW_RESET) || (f->state & FLOW_CLOSED_BY_FIN) == FLOW_CLOSED_BY_FIN;
}

static __always_inline __u64 flow_timeout(const struct flow *f, __u8 proto, bool half)
{
	if (proto == IPPROTO_TCP && unlikely(flow_closed(f)))
		return f->flags & FLOW_MASQUERADE ? masquerade_closed_timeout_ns : tcp_closed_timeout_ns;
	if (proto == IPPROTO_TCP)
		return half ? tcp_syn_timeout_ns : tcp_timeout_ns;
	if (proto == IPPROTO_UDP)
		return half ? udp_unanswered_timeout_ns : udp_timeout_ns;
	return half ? udp_unanswered_timeout_ns : other_timeout_ns;
}

static __always_inline bool flow_expired(const struct flow *f, const struct pkt *p, bool half)
{
	/* The coarse clock of another CPU may be a tick ahead. */
	return p->now > f->seen_ns && p->now - f->seen_ns > flow_timeout(f, p->tuple.proto, half);
}

/* The key of a row's other direction. */
static __always_inline void flow_peer_key(struct tuple *key, const struct flow *f, __u8 proto)
{
	key->src = f->dst;
	key->dst = f->src;
	key->sport = f->dport;
	key->dport = f->sport;
	key->proto = proto;
	key->side = SIDE_FAST;
	/* A request that the stack sent is seen on its way out of it. */
	if (f->action == FLOW_TO_STACK && (f->flags & FLOW_REPLY))
		key->side = f->flags & FLOW_MASQUERADE ? SIDE_WIRE : SIDE_STACK;
	key->pad = 0;
}

static __always_inline struct flow *flow_row(const struct tuple *key, bool *half)
{
	struct flow *f = bpf_map_lookup_elem(&flows, key);

	*half = false;
	if (f)
		return f;
	f = bpf_map_lookup_elem(&halfopen, key);
	*half = f;
	/* Another CPU may have moved it between the two looks. */
	return f ? f : bpf_map_lookup_elem(&flows, key);
}

/* Both rows of a flow, wherever they are; f is the row of `key`. */
static __noinline int flow_delete(const struct tuple *key, const struct flow *f)
{
	struct tuple peer;

	flow_peer_key(&peer, f, key->proto);
	bpf_map_delete_elem(&flows, &peer);
	bpf_map_delete_elem(&halfopen, &peer);
	bpf_map_delete_elem(&flows, key);
	bpf_map_delete_elem(&halfopen, key);
	return 0;
}

/* A row begins half open, and alone: a dead one of its tuple in `flows` would be found first. */
static __always_inline void flow_begin(const struct tuple *key, const struct flow *f)
{
	bpf_map_delete_elem(&flows, key);
	bpf_map_update_elem(&halfopen, key, f, BPF_ANY);
}

/* Both rows of a half-open flow become lasting ones. Written before they are deleted,
 * so that whoever claims a tuple sees it in one table or the other.
 */
static __noinline int flow_promote(struct tuple *key, struct flow *f)
{
	struct tuple peer;
	struct flow copy, *other;

	flow_peer_key(&peer, f, key->proto);
	other = bpf_map_lookup_elem(&halfopen, &peer);
	if (!other)
		return 0; /* a row of the stack's has no other half */
	copy = *other;
	bpf_map_update_elem(&flows, &peer, &copy, BPF_ANY);
	copy = *f;
	bpf_map_update_elem(&flows, key, &copy, BPF_ANY);
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
	struct tuple peer;
	struct flow *request;

	if (!p || !f)
		return 0;
	if (p->tuple.proto == IPPROTO_TCP && p->fragment == LATER_FRAGMENT) /* has no sequence numbers */
		return 0;
	if (f->flags & FLOW_REPLY) {
		flow_peer_key(&peer, f, p->tuple.proto);
		request = bpf_map_lookup_elem(&halfopen, &peer);
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

/* The LRU takes rows one by one: has this request lost its reply's? The tuple may be
 * another flow's by now.
 */
__noinline int flow_lost_reply(struct pkt *p, struct flow *f)
{
	struct tuple peer;
	struct flow *reply;
	bool half;

	if (!p || !f || (f->flags & FLOW_REPLY))
		return 0;
	flow_peer_key(&peer, f, p->tuple.proto);
	reply = flow_row(&peer, &half);
	return !reply || reply->sport != p->tuple.dport || reply->dport != p->tuple.sport ||
	       !addr_equal(&reply->src, &p->tuple.dst) || !addr_equal(&reply->dst, &p->tuple.src);
}

/* A flow begins anew: the old one's rows make room, and the client keeps the port it had
 * (its own kernel, and the pod's, hold this for a continuation).
 */
static __always_inline void flow_forget(struct pkt *p, struct flow *f)
{
	p->hint = f->sport;
	if (!flow_lost_reply(p, f)) {
		flow_delete(&p->tuple, f);
		return;
	}
	bpf_map_delete_elem(&flows, &p->tuple);
	bpf_map_delete_elem(&halfopen, &p->tuple);
}

/* The packet's live row. A closed one still carries the last segments, but no new
 * connection.
 */
static __always_inline struct flow *flow_find(struct pkt *p, __u64 src_generation, bool *half)
{
	struct flow *f = flow_row(&p->tuple, half);

	if (!f || f->src_generation != src_generation || flow_expired(f, p, *half))
		return NULL;
	if (unlikely(is_syn(p) && flow_closed(f)) ||
	    (unlikely(p->now > f->seen_ns + NSEC_PER_SEC) && flow_lost_reply(p, f))) {
		flow_forget(p, f);
		return NULL;
	}
	return f;
}

/* Note what the packet says of its flow; f may have moved. */
static __always_inline struct flow *flow_touch(struct pkt *p, struct flow *f, bool half)
{
	if (unlikely(p->now > f->seen_ns + NSEC_PER_SEC))
		flow_refresh(p, f);
	if (unlikely(p->tcp_flags & (TCP_FIN | TCP_RST)))
		flow_close(p, f);
	if (unlikely(half) && flow_proved(p, f) && flow_promote(&p->tuple, f))
		f = bpf_map_lookup_elem(&flows, &p->tuple);
	return f;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Flow rows: what the fast path may carry. A flow has two, the request's and the
 * reply's; they begin in `halfopen`, a small table that a flood may churn, and move to
 * `flows` when the peer has proved to be there. Expiry is lazy, nothing sweeps.
 */
#pragma once

#include "parse.h"

#define FLOW_CLOSED_BY_FIN (FLOW_FIN_SELF | FLOW_FIN_PEER)

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

static __always_inline bool flow_reopened(const struct flow *f)
{
	return f->state & FLOW_REOPENED;
}

static __always_inline struct flow *flow_row(const struct tuple *key, bool *half)
{
	struct flow *f = bpf_map_lookup_elem(&flows, key);

	if (f) {
		*half = flow_reopened(f);
		return f;
	}
	f = bpf_map_lookup_elem(&halfopen, key);
	*half = f;
	/* Another CPU may have moved it between the two looks. */
	return f ? f : bpf_map_lookup_elem(&flows, key);
}

/* Does the row lead the answer to the packet back to it, as far as the stack is concerned? */
static __always_inline bool leads_back(const struct flow *row, const struct pkt *p)
{
	return row->action == FLOW_TO_STACK && row->dport == p->tuple.sport &&
	       addr_equal(&row->dst, &p->tuple.src);
}

/* The row of the packet's own tuple. A SYN has none, or one that is half open, but for a few:
 * in this order two looks are enough, as a row is written to `flows` before it leaves `halfopen`.
 */
static __always_inline struct flow *flow_of_packet(struct pkt *p, bool *half)
{
	struct flow *f;

	if (is_syn(p)) {
		f = bpf_map_lookup_elem(&halfopen, &p->tuple);
		*half = f;
		if (f)
			return f;
		f = bpf_map_lookup_elem(&flows, &p->tuple);
		*half = f && flow_reopened(f);
	} else {
		f = flow_row(&p->tuple, half);
	}
	p->lasting = f && (!*half || flow_reopened(f));
	return f;
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

/* A row begins half open, and alone: a dead one of its tuple in `flows`, which the caller has
 * looked for, would be found first.
 */
static __always_inline void flow_begin(const struct tuple *key, const struct flow *f, bool lasting)
{
	if (unlikely(lasting))
		bpf_map_delete_elem(&flows, key);
	bpf_map_update_elem(&halfopen, key, f, BPF_ANY);
}

/* The row of the flow that the packet has just opened. */
static __always_inline struct flow *flow_begun(struct pkt *p, bool *half)
{
	*half = true;
	return p->reopened ? bpf_map_lookup_elem(&flows, &p->tuple) : bpf_map_lookup_elem(&halfopen, &p->tuple);
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
	p->lasting = 0;
	if (!flow_lost_reply(p, f)) {
		flow_delete(&p->tuple, f);
		return;
	}
	bpf_map_delete_elem(&flows, &p->tuple);
	bpf_map_delete_elem(&halfopen, &p->tuple);
}

/* The closed flow that the packet's would have taken the place of, and has not. */
static __noinline int forget_closed(struct pkt *p)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &p->tuple);

	p->closed = 0;
	if (f)
		flow_forget(p, f);
	return 0;
}

/* The packet's live row. A closed one still carries the last segments, but no new
 * connection.
 */
static __always_inline struct flow *flow_find(struct pkt *p, __u64 src_generation, bool *half)
{
	struct flow *f = flow_of_packet(p, half);

	if (!f || f->src_generation != src_generation || flow_expired(f, p, *half))
		return NULL;
	if (unlikely(is_syn(p) && flow_closed(f)) && p->lasting) {
		p->hint = f->sport;
		p->closed = 1;
		return NULL;
	}
	if (unlikely(is_syn(p) && flow_closed(f)) ||
	    (unlikely(p->now > f->seen_ns + NSEC_PER_SEC) && flow_lost_reply(p, f))) {
		flow_forget(p, f);
		return NULL;
	}
	return f;
}

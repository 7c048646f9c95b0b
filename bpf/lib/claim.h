// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Opening a flow. The central rule (design 4.3): a reply goes back the way its request
 * came. So a flow is opened only for a packet that begins one and that netfilter does
 * not know, and only with the reply's tuple to itself: where another live flow of this
 * client and pod has it, the client's port towards the pod is changed.
 */
#pragma once

#include "conntrack.h"
#include "hostport.h"
#include "ports.h"
#include "proof.h"

#define CLAIM_TRIES 32 /* ports tried for a reply tuple */

#define FLOW_OPENED 0x101
#define CLAIM_HELD 0
#define CLAIM_DONE 1

/* A masqueraded flow's claim outlives its pod as it does the connection. */
static __always_inline bool claim_expired(const struct flow *row, bool half, const struct pkt *p)
{
	struct pod *pod;

	if (flow_expired(row, p, half))
		return true;
	if (!(row->flags & FLOW_MASQUERADE) || !row->dst_generation ||
	    p->now <= row->seen_ns + masquerade_closed_timeout_ns)
		return false;
	pod = pod_find(&row->dst);
	return !pod || pod->generation != row->dst_generation;
}

/* Is the row someone else's claim? One of a former pod, or of the pod that had the client's
 * address before, is nobody's; one of the same client calling the same address by the same way
 * is our own former self.
 */
static __always_inline bool claim_held(const struct flow *row, bool half, const struct flow *want,
				       const struct pkt *p)
{
	bool same_client = addr_equal(&row->dst, &want->dst);

	if (row->src_generation != want->src_generation || claim_expired(row, half, p))
		return false;
	if (same_client && row->dst_generation != want->dst_generation)
		return row->flags & FLOW_MASQUERADE;
	return !(same_client && row->action == want->action && row->sport == want->sport &&
		 row->dport == want->dport && addr_equal(&row->src, &want->src));
}

struct claim {
	struct __sk_buff *skb;
	struct pkt *p;
	struct flow *request;
	struct flow reply;
	struct tuple key; /* of the reply */
	__u64 done;
};

/* May the fast path have the tuple, as far as the host is concerned? */
static __always_inline bool claim_allowed(struct claim *c)
{
	if (ct_lookup(c->skb, &c->key) != CT_UNKNOWN)
		return false;
	if (c->reply.flags & FLOW_MASQUERADE) /* the number is one of the node's own */
		return !is_hostport(&c->key) && !host_socket(c->skb, &c->key);
	return c->reply.action != FLOW_TO_HOST || host_socket(c->skb, &c->key) != SOCKET_CONNECTED;
}

/* The claim among half-open flows. That there is none is for the write to find out. */
static __always_inline bool claim_half(struct claim *c)
{
	struct flow *row;

	if (likely(!bpf_map_update_elem(&halfopen, &c->key, &c->reply, BPF_NOEXIST)))
		return true;
	row = bpf_map_lookup_elem(&halfopen, &c->key);
	if (row && claim_held(row, true, &c->reply, c->p))
		return false;
	if (row)
		bpf_map_delete_elem(&halfopen, &c->key);
	return !bpf_map_update_elem(&halfopen, &c->key, &c->reply, BPF_NOEXIST);
}

/* Claim c->key for c->reply. The look into `flows` comes last: a claim that was half open
 * before ours is there by now.
 */
static __always_inline bool claim_tuple(struct claim *c)
{
	struct flow *row;

	if (!claim_allowed(c) || !claim_half(c))
		return false;
	row = bpf_map_lookup_elem(&flows, &c->key);
	if (likely(!row))
		return true;
	if (claim_held(row, flow_reopened(row), &c->reply, c->p)) {
		bpf_map_delete_elem(&halfopen, &c->key);
		return false;
	}
	bpf_map_delete_elem(&flows, &c->key);
	return true;
}

static __always_inline bool flow_same(const struct flow *a, const struct flow *b)
{
	return addr_equal(&a->src, &b->src) && addr_equal(&a->dst, &b->dst) && a->sport == b->sport &&
	       a->dport == b->dport && a->action == b->action && a->flags == b->flags &&
	       a->src_generation == b->src_generation && a->dst_generation == b->dst_generation;
}

static __always_inline void flow_restart(struct flow *f, const struct pkt *p)
{
	f->seen_ns = p->now;
	f->tcp_seq = 0;
	f->state = FLOW_REOPENED;
}

/* A closed flow whose client calls again begins anew where its rows are, if new ones would say the
 * same. That costs a quarter of making them, and takes no other flow's place; until the peer has
 * proved to be there it ages as a half-open one. Nobody else may claim its tuple meanwhile: a closed
 * row holds that, and is no older than it was when it was found.
 */
static __noinline int claim_again(struct claim *c)
{
	struct flow *request, *reply;

	flow_peer_key(&c->key, c->request, c->p->tuple.proto);
	c->reply.flags = c->request->flags | FLOW_REPLY;
	reply = bpf_map_lookup_elem(&flows, &c->key);
	if (!reply || !flow_same(reply, &c->reply) || flow_expired(reply, c->p, flow_reopened(reply)))
		return 0;
	if (!claim_allowed(c))
		return 0;
	request = bpf_map_lookup_elem(&flows, &c->p->tuple);
	if (!request || !flow_same(request, c->request))
		return 0;
	flow_restart(reply, c->p);
	flow_restart(request, c->p);
	return 1;
}

static __always_inline bool has_changeable_port(const struct pkt *p)
{
	return p->tuple.proto == IPPROTO_TCP || p->tuple.proto == IPPROTO_UDP ||
	       p->tuple.proto == IPPROTO_SCTP || is_icmp(p);
}

/* Does the request leave with the node's address, so that its port has to be of the pool? */
static __always_inline bool flow_is_nodes(const struct flow *f, const struct pkt *p)
{
	return (f->flags & FLOW_MASQUERADE) && !(f->src_generation && addr_equal(&f->src, &p->tuple.src));
}

/* One try (bpf_loop: the verifier walks it once, however many there are). */
static long claim_try(__u32 i, struct claim *c)
{
	struct flow *f = c->request;

	flow_peer_key(&c->key, f, c->p->tuple.proto);
	c->reply.flags = f->flags | FLOW_REPLY;
	if (claim_tuple(c)) {
		c->done = CLAIM_DONE;
		return 1;
	}
	if (!has_changeable_port(c->p))
		return 1;
	f->sport = flow_is_nodes(f, c->p) ? pool_port() : random_port();
	f->flags |= FLOW_TRANSLATE;
	return !f->sport;
}

/* Claim a reply tuple for the request row f, changing the client's port in f if that
 * is what it takes.
 */
static __noinline int claim_reply(struct __sk_buff *skb, struct pkt *p, struct flow *f, __u32 reply_action)
{
	struct claim c = {
		.skb = skb,
		.p = p,
		.request = f,
		.reply = {
			.src = p->tuple.dst,
			.dst = p->tuple.src,
			.sport = p->tuple.dport,
			.dport = p->tuple.sport,
			.action = reply_action,
			.src_generation = f->dst_generation,
			.dst_generation = f->src_generation,
			.seen_ns = p->now,
			.state = f->state,
		},
	};

	if (unlikely(p->closed)) {
		p->reopened = claim_again(&c);
		if (p->reopened) {
			p->closed = 0;
			return CLAIM_DONE;
		}
		forget_closed(p);
	}
	bpf_loop(CLAIM_TRIES, claim_try, &c, 0);
	return c.done;
}

/* May this packet begin a flow? A hostPort's SYN and UDP are captured even where
 * conntrack knows the tuple as a request (a UDP client that called before the mapping
 * was there keeps its port, H7), but never a reply to what netfilter carries.
 */
static __always_inline bool may_open(struct __sk_buff *skb, struct pkt *p, const struct flow *f)
{
	bool tcp = p->tuple.proto == IPPROTO_TCP, middle = tcp && !is_syn(p);
	bool hostport = f->flags & FLOW_HOSTPORT;
	int known;

	if (middle && (p->tcp_flags & TCP_RST))
		return false;
	/* An echo reply, or any reply whose request we did not carry, is the stack's. */
	if (is_echo_reply(p))
		return false;
	known = ct_lookup(skb, &p->tuple);
	if (known == CT_REPLY || (known && (!hostport || middle)))
		return false;
	return !(middle && hostport && host_socket(skb, &p->tuple) == SOCKET_CONNECTED);
}

/* Open the flow whose request row is f. FLOW_OPENED, TO_STACK or a drop. */
static __always_inline int flow_open(struct __sk_buff *skb, struct pkt *p, struct flow *f, __u32 reply_action)
{
	if (!may_open(skb, p, f))
		return TO_STACK;
	if (p->tuple.proto == IPPROTO_TCP && !is_syn(p))
		f->state |= FLOW_TCP_MID;
	if (f->flags & FLOW_HOSTPORT)
		f->flags |= FLOW_TRANSLATE;
	if (p->hint && p->hint != f->sport) {
		f->sport = p->hint;
		f->flags |= FLOW_TRANSLATE;
	}
	if (claim_reply(skb, p, f, reply_action) != CLAIM_DONE)
		return has_changeable_port(p) ? -DROP_PORTS_EXHAUSTED : TO_STACK;
	if (!p->reopened)
		flow_begin(&p->tuple, f, p->lasting);
	return FLOW_OPENED;
}

/* The request row of a flow that keeps its addresses: hostPort and the claim may change
 * it.
 */
static __always_inline void flow_request(struct flow *f, const struct pkt *p, __u64 src_generation)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->src = p->tuple.src;
	f->dst = p->tuple.dst;
	f->sport = p->tuple.sport;
	f->dport = p->tuple.dport;
	f->src_generation = src_generation;
	f->seen_ns = p->now;
}

/* The packets of this key are the stack's, as they are: a row that says so, unless a live
 * one leads elsewhere.
 */
static __noinline int leave_to_stack(struct pkt *p, struct tuple *key)
{
	struct flow f = {
		.src = key->src,
		.dst = key->dst,
		.sport = key->sport,
		.dport = key->dport,
		.action = FLOW_TO_STACK,
		.flags = FLOW_REPLY,
		.src_generation = generation_of(&key->src),
		.dst_generation = generation_of(&key->dst),
		.seen_ns = p->now,
	}, *row;
	bool half;

	row = flow_row(key, &half);
	if (!row || row->src_generation != f.src_generation || flow_expired(row, p, half))
		flow_begin(key, &f, row);
	else if (row->action == FLOW_TO_STACK)
		row->seen_ns = p->now;
	return TO_STACK;
}

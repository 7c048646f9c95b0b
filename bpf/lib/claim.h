// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Opening a flow. The central rule (design 4.3): a reply goes back the way its request
 * came. So a flow is opened only for a packet that begins one and that netfilter does
 * not know, and only with the reply's tuple to itself: where another live flow of this
 * client and pod has it, the client's port towards the pod is changed.
 */
#pragma once

#include "conntrack.h"
#include "flow.h"
#include "hostport.h"

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

/* Nobody else's; what is left of a dead row is in *full or *half. */
static __always_inline bool claim_free(struct claim *c, struct flow **full, struct flow **half)
{
	*full = bpf_map_lookup_elem(&flows, &c->key);
	if (*full && claim_held(*full, false, &c->reply, c->p))
		return false;
	*half = bpf_map_lookup_elem(&halfopen, &c->key);
	if (*half && claim_held(*half, true, &c->reply, c->p))
		return false;
	if (ct_lookup(c->skb, &c->key) != CT_UNKNOWN)
		return false;
	if (c->reply.flags & FLOW_MASQUERADE) /* the number is one of the node's own */
		return !is_hostport(&c->key) && !host_socket(c->skb, &c->key);
	return c->reply.action != FLOW_TO_HOST || host_socket(c->skb, &c->key) != SOCKET_CONNECTED;
}

/* Claim c->key for c->reply. */
static __always_inline bool claim_tuple(struct claim *c)
{
	struct flow *row, *half;

	if (!claim_free(c, &row, &half))
		return false;
	if (row)
		bpf_map_delete_elem(&flows, &c->key);
	if (half)
		bpf_map_delete_elem(&halfopen, &c->key);
	if (bpf_map_update_elem(&halfopen, &c->key, &c->reply, BPF_NOEXIST))
		return false;
	/* Another CPU may have moved its row to `flows` since we looked. */
	row = bpf_map_lookup_elem(&flows, &c->key);
	if (!row || !claim_held(row, false, &c->reply, c->p))
		return true;
	bpf_map_delete_elem(&halfopen, &c->key);
	return false;
}

static __always_inline bool has_changeable_port(const struct pkt *p)
{
	return p->tuple.proto == IPPROTO_TCP || p->tuple.proto == IPPROTO_UDP ||
	       p->tuple.proto == IPPROTO_SCTP || is_icmp(p);
}

static __always_inline __u16 random_port(void)
{
	return 1024 + bpf_get_prandom_u32() % (65536 - 1024);
}

/* Is the number one of those that masqueraded flows may have? */
__noinline int pool_holds(__u32 port)
{
	__u32 key = 0;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	if (!node)
		return 0;
	for (int i = 0; i < PORT_RANGES && node->ports[i].last; i++)
		if (port >= node->ports[i].first && port <= node->ports[i].last)
			return 1;
	return 0;
}

/* Any of them, each as likely as the other; 0: there is none. */
__noinline int pool_port(void)
{
	__u32 key = 0, n, size;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	if (!node || !node->port_count)
		return 0;
	n = bpf_get_prandom_u32() % node->port_count;
	for (int i = 0; i < PORT_RANGES; i++) {
		size = node->ports[i].last - node->ports[i].first + 1;
		if (n < size)
			return node->ports[i].first + n;
		n -= size;
	}
	return 0;
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
	f->sport = f->flags & FLOW_MASQUERADE ? pool_port() : random_port();
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
	flow_begin(&p->tuple, f);
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
		flow_begin(key, &f);
	else if (row->action == FLOW_TO_STACK)
		row->seen_ns = p->now;
	return TO_STACK;
}

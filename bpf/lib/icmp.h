// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* ICMP errors. One quotes the packet that it is about as that was on the wire; who sent
 * it must read it as he sent it. The quoted packet's reverse is the key of the row that
 * knows how (RFC 5508), so errors need no state of their own.
 */
#pragma once

#include "csum.h"
#include "extension.h"
#include "flow.h"
#include "nat.h"
#include "pod.h"
#include "route.h"

#define ICMP_HEADER 8
#define TCP_CHECK 16 /* offsets of checksums */
#define UDP_CHECK 6
#define ICMP_CHECK 2

static __always_inline int quoted_network(struct __sk_buff *skb, struct pkt *p, struct pkt *q)
{
	__u32 off = p->l4 + ICMP_HEADER;
	struct iphdr *ip4;
	struct ipv6hdr *ip6;

	q->version = p->version;
	q->now = p->now;
	if (p->version == 4) {
		ip4 = pkt_at(skb, off, sizeof(*ip4));
		if (!ip4 || ip4->version != 4 || ip4->ihl < 5 || (ip4->frag_off & bpf_htons(IP_OFFSET)))
			return -1;
		addr_v4(&q->tuple.src, ip4->saddr);
		addr_v4(&q->tuple.dst, ip4->daddr);
		q->tuple.proto = ip4->protocol;
		q->l4 = off + ip4->ihl * 4;
		return 0;
	}
	ip6 = pkt_at(skb, off, sizeof(*ip6));
	if (!ip6 || ip6->version != 6)
		return -1;
	__builtin_memcpy(&q->tuple.src, &ip6->saddr, sizeof(struct addr));
	__builtin_memcpy(&q->tuple.dst, &ip6->daddr, sizeof(struct addr));
	if (addr_is_v4(&q->tuple.src) || addr_is_v4(&q->tuple.dst))
		return -1; /* would be taken for IPv4's */
	q->tuple.proto = ip6->nexthdr;
	q->l4 = off + sizeof(*ip6);
	skip_extensions(skb, q);
	return q->fragment == LATER_FRAGMENT || q->rowless ? -1 : 0;
}

static __always_inline bool has_ports(const struct pkt *q)
{
	return q->tuple.proto == IPPROTO_TCP || q->tuple.proto == IPPROTO_UDP || q->tuple.proto == IPPROTO_SCTP;
}

/* The first 8 bytes of its transport header, which is all that need be there. */
static __always_inline int quoted_transport(struct __sk_buff *skb, struct pkt *q)
{
	__be16 *port = pkt_at(skb, q->l4, 8);

	if (!port)
		return -1;
	if (has_ports(q)) {
		q->tuple.sport = bpf_ntohs(port[0]);
		q->tuple.dport = bpf_ntohs(port[1]);
		q->unsummed = q->tuple.proto == IPPROTO_UDP && !port[3];
	} else if (is_icmp(q)) {
		q->icmp_type = *(__u8 *)port;
		if (q->icmp_type == (q->version == 6 ? ICMPV6_ECHO_REQUEST : ICMP_ECHO))
			q->tuple.sport = bpf_ntohs(port[2]);
		else if (is_echo_reply(q))
			q->tuple.dport = bpf_ntohs(port[2]);
		else
			return -1;
	}
	return 0;
}

__noinline int read_quote(struct __sk_buff *skb, struct pkt *p, struct pkt *q)
{
	if (!p || !q || quoted_network(skb, p, q))
		return -1;
	return quoted_transport(skb, q);
}

/* Give the quoted header other addresses. What that adds to the error's checksum goes
 * into *sum; IPv4's header sums up to the same.
 */
static __always_inline int write_quoted_network(struct __sk_buff *skb, struct pkt *p, const struct tuple *to,
						__u32 addresses, __u64 *sum)
{
	__u32 off = p->l4 + ICMP_HEADER;
	struct iphdr *ip4;
	struct ipv6hdr *ip6;

	if (p->version == 4) {
		ip4 = pkt_at(skb, off, sizeof(*ip4));
		if (!ip4)
			return -1;
		ip4->saddr = addr_to_v4(&to->src);
		ip4->daddr = addr_to_v4(&to->dst);
		ip4->check = csum_fold((__u16)~ip4->check + csum_fold32(addresses));
		return 0;
	}
	ip6 = pkt_at(skb, off, sizeof(*ip6));
	if (!ip6)
		return -1;
	__builtin_memcpy(&ip6->saddr, &to->src, sizeof(struct addr));
	__builtin_memcpy(&ip6->daddr, &to->dst, sizeof(struct addr));
	*sum += csum_fold32(addresses);
	return 0;
}

static __always_inline void write_quoted_ports(struct __sk_buff *skb, const struct pkt *q,
					       const struct tuple *to, __u64 *sum)
{
	__be16 *port = pkt_at(skb, q->l4, 8);

	if (!port)
		return;
	if (is_icmp(q)) {
		port[2] = bpf_htons(to->sport | to->dport);
	} else if (has_ports(q)) {
		port[0] = bpf_htons(to->sport);
		port[1] = bpf_htons(to->dport);
	}
	*sum += (__u16)~bpf_htons(q->tuple.sport) + bpf_htons(to->sport) + (__u16)~bpf_htons(q->tuple.dport) +
		bpf_htons(to->dport);
}

/* The quoted packet's own checksum, if the quotation reaches it. */
static __always_inline void write_quoted_checksum(struct __sk_buff *skb, const struct pkt *q, __u32 diff,
						  __u64 *sum)
{
	__u32 off = q->tuple.proto == IPPROTO_TCP ? TCP_CHECK :
		    q->tuple.proto == IPPROTO_UDP ? UDP_CHECK :
						    ICMP_CHECK;
	__u16 old, *check;

	if (q->unsummed || (!is_icmp(q) && q->tuple.proto != IPPROTO_TCP && q->tuple.proto != IPPROTO_UDP))
		return;
	check = pkt_at(skb, q->l4 + off, sizeof(*check));
	if (!check)
		return;
	old = *check;
	*check = csum_fold((__u16)~old + csum_fold32(diff));
	if (!*check && q->tuple.proto == IPPROTO_UDP)
		*check = 0xffff;
	*sum += (__u16)~old + *check;
}

/* Make the quoted packet say `to`, and the error's checksum fit. */
__noinline int write_quote(struct __sk_buff *skb, struct pkt *p, struct pkt *q, struct tuple *to)
{
	__u32 addresses, ports;
	__u64 sum = 0;

	if (!p || !q || !to)
		return -1;
	addresses = csum_diff_addresses(&q->tuple.src, &to->src);
	if (write_quoted_network(skb, p, to, addresses, &sum))
		return -1;
	ports = sum;
	write_quoted_ports(skb, q, to, &sum);
	ports = sum - ports;
	write_quoted_checksum(skb, q, (q->tuple.proto == IPPROTO_ICMP ? 0 : csum_fold32(addresses)) + ports,
			      &sum);
	if (sum)
		bpf_l4_csum_replace(skb, p->l4 + ICMP_CHECK, 0, sum, 0);
	return 0;
}

static __always_inline struct flow *quoted_row(const struct tuple *key, const struct pkt *q, __u64 generation)
{
	bool half;
	struct flow *f = flow_row(key, &half);

	return f && f->src_generation == generation && !flow_expired(f, q, half) ? f : NULL;
}

static __always_inline bool leaves_stack(enum hook hook)
{
	return hook == HOOK_TO_UPLINK || hook == HOOK_TO_TUNNEL;
}

/* The row of the packets that go the other way than the quoted one did. The stack's own
 * flows come first at its hooks: there the quoted packet is as the stack knows it. A pod
 * may speak of its own flows alone.
 */
static __noinline struct flow *quoted_flow(const struct pkt *p, const struct pkt *q, struct tuple *key,
					   enum hook hook)
{
	struct pod *sender = pod_find(&p->tuple.src);
	struct flow *f = NULL;
	__u64 generation;

	tuple_reverse(key, &q->tuple);
	generation = generation_of(&key->src);
	if (sender && sender->generation != generation)
		return NULL;
	/* What a pod would answer comes from the pod: nobody on the wire or lo has seen the question. */
	if (generation && (hook == HOOK_FROM_UPLINK || hook == HOOK_FROM_HOST))
		return NULL;
	if (leaves_stack(hook) || hook == HOOK_TO_POD) {
		key->side = leaves_stack(hook) ? SIDE_WIRE : SIDE_STACK;
		f = quoted_row(key, q, generation);
		key->side = SIDE_FAST;
	}
	return f ? f : quoted_row(key, q, generation);
}

/* Carry an error to who sent the packet that it is about, by the way of his flow. */
static __noinline int carry_error(struct __sk_buff *skb, struct pkt *p, enum hook hook)
{
	bool in = !leaves_stack(hook) && hook != HOOK_TO_POD, hop;
	struct pod *to = NULL;
	struct flow *f, out;
	struct tuple key;
	struct pkt q = {};
	int action;

	if (p->fragment || read_quote(skb, p, &q))
		return TO_STACK;
	f = quoted_flow(p, &q, &key, hook);
	if (!f || (!in && !(f->flags & FLOW_TRANSLATE)))
		return TO_STACK;
	out = *f;
	/* Whoever says it, about what he passed on, but the pod, which nobody knows, and strangers, whom a
	 * tunnel's far end does not hear.
	 */
	if (!addr_equal(&p->tuple.src, &q.tuple.dst) &&
	    !(hook == HOOK_FROM_POD && (f->flags & FLOW_TRANSLATE)) &&
	    !(hook == HOOK_TO_TUNNEL && !f->src_generation))
		out.src = p->tuple.src;
	action = in ? f->action : TO_STACK;
	if (f->dst_generation) {
		to = pod_find(&f->dst);
		if (!to || to->generation != f->dst_generation)
			return TO_STACK;
	}
	hop = hook != HOOK_FROM_HOST && (action == FLOW_TO_POD || action == FLOW_TO_WIRE);
	if (hop && p->ttl <= 1)
		return TO_STACK;
	if (action == FLOW_TO_WIRE && route_lookup(skb, p, &out) != CONTINUE)
		return TO_STACK;
	if (f->flags & FLOW_TRANSLATE) {
		key.src = f->dst;
		key.dst = f->src;
		key.sport = f->dport;
		key.dport = f->sport;
		if (write_quote(skb, p, &q, &key))
			return TO_STACK;
	}
	out.sport = p->tuple.sport;
	out.dport = p->tuple.dport;
	if (translate(skb, p, &out, hop))
		return TO_STACK;
	return send(skb, p, action, to, hook);
}

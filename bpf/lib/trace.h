// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The one place where a program ends: a drop is counted, and what became of the packet is
 * told to whoever listens. While nobody does, that is one word, looked at and found zero.
 */
#pragma once

#include "pod.h"

#define ARP_SENDER 28 /* offsets of its IPv4 addresses in a frame */
#define ARP_TARGET 38

static __always_inline struct trace_filter *trace_row(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&trace, &key);
}

static __always_inline bool is_traced(void)
{
	struct trace_filter *t = trace_row();

	return t && unlikely(t->until_ns);
}

/* A reader who was killed has not said so: the first packet after his time does. */
static __always_inline bool trace_lives(struct trace_filter *t, __u64 now)
{
	__u64 until = t->until_ns;

	if (now < until)
		return true;
	__sync_val_compare_and_swap(&t->until_ns, until, 0);
	return false;
}

static __always_inline void read_arp(struct __sk_buff *skb, struct tuple *t)
{
	__be32 ip = 0;

	bpf_skb_load_bytes(skb, ARP_SENDER, &ip, sizeof(ip));
	addr_v4(&t->src, ip);
	ip = 0;
	bpf_skb_load_bytes(skb, ARP_TARGET, &ip, sizeof(ip));
	addr_v4(&t->dst, ip);
}

/* The packet as it is by now, and what of it as it came is not to be had any more. */
static __always_inline void trace_packet(struct __sk_buff *skb, struct event *e)
{
	struct pkt now;

	if (skb->protocol == bpf_htons(ETH_P_ARP) && !is_tagged(skb))
		read_arp(skb, &e->to);
	else if (parse(skb, &now) == CONTINUE)
		e->to = now.tuple;
	else
		return;
	if (addr_is_zero(&e->tuple.src) && addr_is_zero(&e->tuple.dst))
		e->tuple = e->to;
}

/* Where a redirect leads. The program has told the kernel, which does not tell. */
static __always_inline __u32 trace_out(struct __sk_buff *skb, const struct event *e, __u32 slot)
{
	struct pod *pod = pod_find(&e->to.dst);
	struct hop *hop = bpf_map_lookup_elem(&hops, &slot);

	if (pod)
		return pod->ifindex;
	if (hop && addr_equal(&hop->dst, &e->to.dst) && addr_equal(&hop->src, &e->to.src))
		return hop->ifindex;
	return skb->tc_index == REDIRECT_STAMP ? skb->ifindex : LO_IFINDEX; /* a neighbour's answer; the host */
}

static __always_inline bool is_of_pod(const struct addr *a, __u32 ifindex)
{
	struct pod *pod = pod_find(a);

	return pod && pod->ifindex == ifindex;
}

static __always_inline bool has_host(const struct tuple *t, const struct addr *host)
{
	return addr_equal(&t->src, host) || addr_equal(&t->dst, host);
}

static __always_inline bool has_port(const struct tuple *t, __u16 port)
{
	return t->sport == port || t->dport == port;
}

static __always_inline bool concerns_pod(const struct event *e, __u32 ifindex)
{
	return e->ifindex == ifindex || e->out_ifindex == ifindex || is_of_pod(&e->tuple.src, ifindex) ||
	       is_of_pod(&e->tuple.dst, ifindex) || is_of_pod(&e->to.src, ifindex) ||
	       is_of_pod(&e->to.dst, ifindex);
}

static __always_inline bool is_wanted(const struct trace_filter *t, const struct event *e)
{
	__u8 proto = e->tuple.proto == IPPROTO_ICMPV6 ? IPPROTO_ICMP : e->tuple.proto;
	struct addr host = t->host;

	if (t->proto && t->proto != proto)
		return false;
	if (!addr_is_zero(&host) && !has_host(&e->tuple, &host) && !has_host(&e->to, &host))
		return false;
	if (t->port && !has_port(&e->tuple, t->port) && !has_port(&e->to, t->port))
		return false;
	return !t->ifindex || concerns_pod(e, t->ifindex);
}

/* Tell of the packet what became of it; `p` is how it came, if that was looked at (global:
 * verified once).
 */
__noinline int tell(struct __sk_buff *skb, struct pkt *p, int hook, int verdict)
{
	struct event e = { .time_ns = bpf_ktime_get_ns(), .hook = hook };
	struct trace_filter *t = trace_row();

	if (!t || !trace_lives(t, e.time_ns))
		return 0;
	e.verdict = !p					       ? VERDICT_REDIRECTED :
		    verdict < 0 || verdict == TC_ACT_SHOT      ? VERDICT_DROP :
		    verdict == TO_STACK || verdict == CONTINUE ? VERDICT_PASS :
								 VERDICT_REDIRECT;
	if ((t->flags & TRACE_DROPS_ONLY) && e.verdict != VERDICT_DROP)
		return 0;
	e.reason = verdict < 0 ? -verdict : 0;
	e.ifindex = skb->ifindex;
	e.length = skb->len;
	e.ethertype = bpf_ntohs(skb->protocol);
	if (p) {
		e.tuple = p->tuple;
		e.tcp_flags = p->tcp_flags;
		e.icmp_type = p->icmp_type;
		e.fragment = p->fragment;
	}
	trace_packet(skb, &e);
	if (e.verdict == VERDICT_REDIRECT)
		e.out_ifindex = trace_out(skb, &e, p ? p->hop_slot : 0);
	if (is_wanted(t, &e) && bpf_ringbuf_output(&events, &e, sizeof(e), 0))
		__sync_fetch_and_add(&t->lost, 1);
	return 0;
}

static __always_inline int finish(struct __sk_buff *skb, struct pkt *p, enum hook hook, int verdict)
{
	if (is_traced())
		tell(skb, p, hook, verdict);
	if (likely(verdict > 0 && verdict != CONTINUE))
		return verdict;
	if (verdict < 0)
		return count_drop(skb, hook, -verdict);
	return TC_ACT_UNSPEC;
}

/* What another hook redirected here has been dealt with. */
static __always_inline int finish_redirected(struct __sk_buff *skb, enum hook hook)
{
	if (is_traced())
		tell(skb, NULL, hook, TO_STACK);
	return TC_ACT_UNSPEC;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The egress limit's second line. Shaping is done by the queue on the pod's own device,
 * where the sender feels it; a pod that removes it meets this generic cell rate
 * algorithm (ITU-T I.371) at exactly the rate, which a standing shaper never trips.
 */
#pragma once

#include "pod.h"
#include "tunnel.h"

#define CLOCK_TRIES 4
#define GSO_BY_FRAGS 0xffff /* SCTP: the pieces have sizes of their own */

/* Bytes on the wire: every segment of a GSO packet has its headers. A pod that injects one
 * (PACKET_VNET_HDR) tells the size of the segments and not their number.
 */
static __always_inline __u64 wire_bytes(struct __sk_buff *skb, const struct pkt *p)
{
	__u32 headers, size = skb->gso_size, segments = skb->gso_segs;

	if (likely(!size))
		return skb->len;
	headers = tunnel_headers(skb);
	if (!headers)
		headers = ETH_HLEN + p->headers;
	if (size != GSO_BY_FRAGS && skb->len > headers && segments < (skb->len - headers + size - 1) / size)
		segments = (skb->len - headers + size - 1) / size;
	return skb->len + (segments > 1 ? (__u64)(segments - 1) * headers : 0);
}

/* What may come ahead of the rate: what the shaper lets through at once, and what a busy
 * processor hands over late and together. With 36 ms, two seconds are exceeded by 1.8 %.
 */
static __always_inline __u64 tolerance_ns(const struct limit *l)
{
	__u64 burst = l->burst_bits * NSEC_PER_SEC / l->rate_bits + egress_tolerance_ns / 3;

	return burst > egress_tolerance_ns ? burst : egress_tolerance_ns;
}

/* A limit is the link's, whoever the packet says it is from. */
__noinline int egress_limit(struct __sk_buff *skb, struct pkt *p)
{
	struct limit_key key = { .ifindex = skb->ifindex, .direction = FROM_POD };
	struct limit *l = bpf_map_lookup_elem(&limits, &key);
	__u64 now, clock, after, most, cost;

	if (!p || !l || !l->rate_bits)
		return CONTINUE;
	now = bpf_ktime_get_ns();
	most = now + tolerance_ns(l);
	cost = wire_bytes(skb, p) * 8 * NSEC_PER_SEC / l->rate_bits;
	for (int i = 0; i < CLOCK_TRIES; i++) {
		clock = l->clock_ns;
		after = (clock > now ? clock : now) + cost;
		if (after > most)
			return -DROP_EGRESS_LIMIT;
		if (__sync_val_compare_and_swap(&l->clock_ns, clock, after) == clock)
			return CONTINUE;
	}
	__sync_fetch_and_add(&l->clock_ns, cost); /* others were quicker, but nothing is free */
	return CONTINUE;
}

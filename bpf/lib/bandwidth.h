// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The egress limit's second line. Shaping is done by the queue on the pod's own device,
 * where the sender feels it; a pod that removes it meets this generic cell rate
 * algorithm (ITU-T I.371) at exactly the rate, which a standing shaper never trips.
 */
#pragma once

#include "pod.h"

#define EGRESS_RETRIES 4 /* lost races for the clock before the packet passes */

/* Bytes on the wire: a GSO packet repeats its headers. */
static __always_inline __u64 wire_bytes(struct __sk_buff *skb, const struct pkt *p)
{
	if (skb->gso_segs <= 1)
		return skb->len;
	return skb->len + (__u64)(skb->gso_segs - 1) * (p->headers + ETH_HLEN);
}

__noinline int egress_limit(struct __sk_buff *skb, struct pkt *p, __u32 ifindex)
{
	struct limit_key key = { .ifindex = ifindex, .direction = FROM_POD };
	struct limit *l = bpf_map_lookup_elem(&limits, &key);
	__u64 now, clock, start, cost, tolerance;

	if (!p || !l || !l->rate_bits)
		return CONTINUE;
	now = bpf_ktime_get_ns();
	cost = wire_bytes(skb, p) * 8 * NSEC_PER_SEC / l->rate_bits;
	tolerance = l->burst_bits * NSEC_PER_SEC / l->rate_bits;
	if (tolerance < egress_tolerance_ns)
		tolerance = egress_tolerance_ns;
	for (int i = 0; i < EGRESS_RETRIES; i++) {
		clock = l->clock_ns;
		start = clock > now ? clock : now;
		if (start - now > tolerance)
			return -DROP_EGRESS_LIMIT;
		if (__sync_val_compare_and_swap(&l->clock_ns, clock, start + cost) == clock)
			break;
	}
	return CONTINUE;
}

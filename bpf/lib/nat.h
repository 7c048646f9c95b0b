// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Rewriting a packet to a flow row: addresses, ports, TTL and every checksum over them. */
#pragma once

#include "csum.h"
#include "parse.h"

/* Network header: the addresses of f (unless NULL) and, where the packet takes a hop,
 * the TTL.
 */
static __always_inline int write_network(struct __sk_buff *skb, const struct pkt *p, const struct flow *f,
					 __u32 diff, bool hop)
{
	if (p->version == 4) {
		struct iphdr *ip = pkt_at(skb, ETH_HLEN, sizeof(*ip));
		__u32 sum;

		if (!ip)
			return -1;
		sum = (__u16)~ip->check;
		if (f) {
			ip->saddr = addr_to_v4(&f->src);
			ip->daddr = addr_to_v4(&f->dst);
			sum += (diff & 0xffff) + (diff >> 16);
		}
		if (hop) {
			ip->ttl--;
			sum += (__u16)~bpf_htons(0x0100);
		}
		ip->check = csum_fold(sum);
	} else {
		struct ipv6hdr *ip = pkt_at(skb, ETH_HLEN, sizeof(*ip));

		if (!ip)
			return -1;
		if (f) {
			__builtin_memcpy(&ip->saddr, &f->src, sizeof(struct addr));
			__builtin_memcpy(&ip->daddr, &f->dst, sizeof(struct addr));
		}
		if (hop)
			ip->hop_limit--;
	}
	return 0;
}

static __always_inline int l4_csum_offset(const struct pkt *p)
{
	if (p->tuple.proto == IPPROTO_TCP)
		return 16;
	if (p->tuple.proto == IPPROTO_UDP)
		return 6;
	return is_icmp(p) ? 2 : -1;
}

/* The pseudo-header's part of the transport checksum. */
static __always_inline void csum_addresses(struct __sk_buff *skb, const struct pkt *p, __u32 diff, __u64 flags)
{
	if (p->tuple.proto == IPPROTO_ICMP)
		return; /* has no pseudo-header */
	bpf_l4_csum_replace(skb, p->l4 + l4_csum_offset(p), 0, diff, BPF_F_PSEUDO_HDR | flags);
	/* The helper also takes the change out of skb->csum (CHECKSUM_COMPLETE). With no
	 * header checksum to balance it, that is wrong for IPv6: put it back (BPF_F_IPV6
	 * does so from 6.16 on).
	 */
	if (p->version == 6)
		bpf_csum_update(skb, diff);
}

static __always_inline int write_ports(struct __sk_buff *skb, const struct pkt *p, const struct flow *f,
				       __u64 flags)
{
	__u32 off = p->l4 + l4_csum_offset(p);
	__be16 *port;

	if (is_icmp(p)) { /* the identifier, whichever side it stands for */
		__u16 old = p->tuple.sport | p->tuple.dport, id = f->sport | f->dport;

		port = pkt_at(skb, p->l4 + 4, sizeof(*port));
		if (!port)
			return -1;
		*port = bpf_htons(id);
		bpf_l4_csum_replace(skb, off, bpf_htons(old), bpf_htons(id), 2);
		return 0;
	}
	port = pkt_at(skb, p->l4, 2 * sizeof(*port));
	if (!port)
		return -1;
	port[0] = bpf_htons(f->sport);
	port[1] = bpf_htons(f->dport);
	if (f->sport != p->tuple.sport)
		bpf_l4_csum_replace(skb, off, bpf_htons(p->tuple.sport), bpf_htons(f->sport), 2 | flags);
	if (f->dport != p->tuple.dport)
		bpf_l4_csum_replace(skb, off, bpf_htons(p->tuple.dport), bpf_htons(f->dport), 2 | flags);
	return 0;
}

/* Make the packet say what f says. A later fragment carries no transport header. */
static __noinline int translate(struct __sk_buff *skb, struct pkt *p, struct flow *f, int hop)
{
	__u64 flags = p->tuple.proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 diff = csum_diff_addresses(&p->tuple.src, &f->src);

	if (write_network(skb, p, f, diff, hop))
		return -1;
	if (p->fragment == LATER_FRAGMENT || l4_csum_offset(p) < 0)
		return 0;
	if (diff)
		csum_addresses(skb, p, diff, flags);
	if (f->sport != p->tuple.sport || f->dport != p->tuple.dport)
		return write_ports(skb, p, f, flags);
	return 0;
}

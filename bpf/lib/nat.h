// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Rewriting a packet to a flow row: addresses, ports, TTL and every checksum over them. */
#pragma once

#include "crc32c.h"
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

static __always_inline bool has_checksum(const struct pkt *p)
{
	return p->fragment != LATER_FRAGMENT && l4_csum_offset(p) >= 0 && !p->unsummed;
}

/* A device may have summed up the whole packet (CHECKSUM_COMPLETE). What no checksum
 * in the packet balances has to go into that sum: IPv6 has none for its header.
 */
static __always_inline void note_unbalanced(struct __sk_buff *skb, __u32 diff)
{
	if (diff)
		bpf_csum_update(skb, diff);
}

static __always_inline __u32 hop_diff(const struct pkt *p, bool hop)
{
	return hop && p->version == 6 ? (__u16)~bpf_htons(0x0001) : 0;
}

/* The identifier of an echo, or both ports, whichever of them differ. */
static __always_inline int write_ports(struct __sk_buff *skb, const struct pkt *p, const struct flow *f)
{
	__be16 *port = pkt_at(skb, p->l4, 8);

	if (!port)
		return -1;
	if (is_icmp(p)) {
		port[2] = bpf_htons(f->sport | f->dport);
		return 0;
	}
	port[0] = bpf_htons(f->sport);
	port[1] = bpf_htons(f->dport);
	return 0;
}

/* SCTP. A sum of zero is one that the device will fill in (CHECKSUM_PARTIAL), and stays.
 * The length is that of the network header: Ethernet may have padded the frame.
 */
static __always_inline int write_sctp(struct __sk_buff *skb, struct pkt *p, const struct flow *f)
{
	__be16 *length = pkt_at(skb, ETH_HLEN + (p->version == 4 ? 2 : 4), sizeof(*length));
	__u32 bytes, old, *word;

	if (!length || p->fragment)
		return -1;
	bytes = bpf_ntohs(*length) + (p->version == 4 ? 0 : sizeof(struct ipv6hdr)) - (p->l4 - ETH_HLEN);
	word = pkt_at(skb, p->l4, 12);
	if (!word)
		return -1;
	old = word[2];
	if (!old)
		return 0;
	word[2] ^= crc32c_change(*word ^ (bpf_htons(f->sport) | (__u32)bpf_htons(f->dport) << 16), bytes - 4);
	note_unbalanced(skb, csum_fold32(~old) + csum_fold32(word[2]));
	return 0;
}

/* What changing the ports adds to a checksum. */
static __always_inline __u32 port_diff(const struct pkt *p, const struct flow *f)
{
	return (__u16)~bpf_htons(p->tuple.sport) + bpf_htons(f->sport) + (__u16)~bpf_htons(p->tuple.dport) +
	       bpf_htons(f->dport);
}

/* What bpf_l4_csum_replace makes of a checksum. */
static __always_inline __u16 csum_replaced(__u16 sum, __u32 diff)
{
	__u64 whole = (__u64)(__u32)~sum + diff;

	return csum_fold(csum_fold32((whole & 0xffffffff) + (whole >> 32)));
}

/* And of one that the device is to complete (CHECKSUM_PARTIAL). */
static __always_inline __u16 csum_replaced_partial(__u16 sum, __u32 diff)
{
	__u64 whole = (__u64)sum + diff;

	return ~csum_fold(csum_fold32((whole & 0xffffffff) + (whole >> 32)));
}

/* The ports' part, where the addresses' has just been put into `before` by the helper. Which of the
 * two that was tells whether the packet has a whole checksum, so that the helper, 30 ns, need
 * not be called again. false: it has to.
 */
static __always_inline bool write_checksum_ports(struct __sk_buff *skb, const struct pkt *p, __u32 off,
						 __u16 before, __u32 addresses, __u32 ports)
{
	bool whole, partial;
	__u16 *sum = pkt_at(skb, off, sizeof(*sum));

	if (!sum)
		return false;
	whole = *sum == csum_replaced(before, addresses);
	partial = *sum == csum_replaced_partial(before, addresses);
	if (whole == partial)
		return false;
	if (whole)
		*sum = csum_replaced(*sum, ports);
	if (whole && !*sum && p->tuple.proto == IPPROTO_UDP)
		*sum = 0xffff;
	return true;
}

/* The transport checksum: addresses by way of the pseudo-header, which a packet that
 * the device is to sum up (CHECKSUM_PARTIAL) has in its checksum field already; ports not.
 */
static __always_inline void write_checksum(struct __sk_buff *skb, const struct pkt *p, __u32 addresses,
					   __u32 ports)
{
	__u64 flags = p->tuple.proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 off = p->l4 + l4_csum_offset(p);
	__u16 before = 0, *sum;
	bool seen = false;

	if (addresses && p->tuple.proto != IPPROTO_ICMP) {
		sum = ports ? pkt_at(skb, off, sizeof(*sum)) : NULL; /* NULL too behind long extensions */
		if (sum) {
			before = *sum;
			seen = true;
		}
		bpf_l4_csum_replace(skb, off, 0, addresses, BPF_F_PSEUDO_HDR | flags);
		if (seen && write_checksum_ports(skb, p, off, before, addresses, ports))
			return;
	}
	if (ports)
		bpf_l4_csum_replace(skb, off, 0, ports, flags);
}

/* Make the packet say what f says (global: verified once). A later fragment carries no transport header. */
__noinline int translate(struct __sk_buff *skb, struct pkt *p, struct flow *f, int hop)
{
	__u32 addresses, ports = 0;

	if (!p || !f)
		return -1;
	if (p->tuple.proto == IPPROTO_SCTP && (f->sport != p->tuple.sport || f->dport != p->tuple.dport) &&
	    write_sctp(skb, p, f))
		return -1;
	addresses = csum_diff_addresses(&p->tuple.src, &f->src);
	if (write_network(skb, p, f, addresses, hop))
		return -1;
	if (p->fragment != LATER_FRAGMENT && (f->sport != p->tuple.sport || f->dport != p->tuple.dport)) {
		if (write_ports(skb, p, f))
			return -1;
		ports = port_diff(p, f);
	}
	/* The helper takes the addresses' part out of skb->csum, as if a header checksum
	 * balanced them; for IPv6 (BPF_F_IPV6 from 6.16 on) it is put back here.
	 */
	if (has_checksum(p)) {
		write_checksum(skb, p, addresses, ports);
		ports = 0;
	}
	note_unbalanced(skb, ports + hop_diff(p, hop) + (p->version == 6 ? csum_fold32(addresses) : 0));
	return 0;
}

/* A hop, and nothing else. */
static __always_inline int take_hop(struct __sk_buff *skb, const struct pkt *p)
{
	if (write_network(skb, p, NULL, 0, true))
		return -1;
	note_unbalanced(skb, hop_diff(p, true));
	return 0;
}

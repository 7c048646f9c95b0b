// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* ARP and neighbour discovery on a pod's link, in which a pod speaks of itself alone. It has permanent entries for its
 * gateways and asks only if it has lost them; whatever it asks for but itself is reached
 * through the host side of its veth, so that is the answer (RFC 826, RFC 4861). Nobody
 * else hears it: it goes back into the veth that the question came from.
 */
#pragma once

#include "csum.h"
#include "source.h"

struct arp_frame {
	struct ethhdr eth;
	__be16 hardware, protocol;
	__u8 hardware_len, protocol_len;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__u8 sender[4];
	__u8 target_mac[ETH_ALEN];
	__u8 target[4];
} __attribute__((packed));

/* A solicitation with the one option that hosts send, and its answer, which is as long. */
struct nd_frame {
	struct ethhdr eth;
	struct ipv6hdr ip;
	__u8 type, code;
	__sum16 check;
	__u8 flags, reserved[3];
	__u8 target[16];
	__u8 option, option_len;
	__u8 mac[ETH_ALEN];
} __attribute__((packed));

#define ND_MESSAGE 32	/* bytes from type on */
#define ND_SOURCE_MAC 1 /* options */
#define ND_TARGET_MAC 2
#define ND_ROUTER_ANSWER 0xe0 /* router, solicited, override */

/* Back into the veth, as from its host side. */
static __always_inline int answer_link(struct __sk_buff *skb, struct ethhdr *eth, const struct pod *pod)
{
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, pod->host_mac, ETH_ALEN);
	skb->tc_index = REDIRECT_STAMP;
	return bpf_redirect(skb->ifindex, 0);
}

/* Does the message say that the sender is who is on this link (or, a probe, nobody yet)? */
static __always_inline bool arp_is_honest(struct __sk_buff *skb, const struct arp_frame *arp,
					  const struct pod *pod)
{
	struct addr sender;

	for (int i = 0; i < ETH_ALEN; i++)
		if (arp->sender_mac[i] != pod->mac[i] || arp->eth.h_source[i] != pod->mac[i])
			return false;
	addr_v4(&sender, *(__be32 *)arp->sender);
	return !addr_to_v4(&sender) || is_on_link(skb, &sender);
}

__noinline int answer_arp(struct __sk_buff *skb)
{
	struct pod *pod = pod_on_link(skb);
	struct arp_frame *arp;
	struct addr target;

	arp = pkt_at(skb, 0, sizeof(*arp));
	if (!pod || !arp || arp->hardware != bpf_htons(1) || arp->protocol != bpf_htons(ETH_P_IP) ||
	    arp->hardware_len != ETH_ALEN || arp->protocol_len != 4)
		return TO_STACK;
	if ((pod->flags & POD_SOURCE_CHECK) && !arp_is_honest(skb, arp, pod))
		return -DROP_SOURCE;
	if (arp->operation != bpf_htons(1) || (pod->flags & POD_CHAINED))
		return TO_STACK;
	addr_v4(&target, *(__be32 *)arp->target);
	if (is_on_link(skb, &target))
		return TO_STACK; /* is anybody else me? */
	arp->operation = bpf_htons(2);
	__builtin_memcpy(arp->target_mac, arp->sender_mac, ETH_ALEN);
	__builtin_memcpy(arp->sender_mac, pod->host_mac, ETH_ALEN);
	*(__be32 *)arp->target = *(__be32 *)arp->sender;
	*(__be32 *)arp->sender = addr_to_v4(&target);
	return answer_link(skb, &arp->eth, pod);
}

/* Over addresses, length, next header and message; nothing of the old sum is kept. */
static __always_inline __u16 nd_checksum(struct nd_frame *nd)
{
	__u16 *word = (void *)nd + __builtin_offsetof(struct nd_frame, ip.saddr);
	__u32 sum = bpf_htons(ND_MESSAGE) + bpf_htons(IPPROTO_ICMPV6);

#pragma unroll
	for (int i = 0; i < (32 + ND_MESSAGE) / 2; i++)
		sum += word[i];
	return csum_fold(sum);
}

static __always_inline bool is_solicitation(const struct pkt *p)
{
	return p->rowless && p->icmp_type == ICMPV6_NS && is_icmp(p) && p->version == 6;
}

/* CONTINUE: not answered, and held to what every packet is. */
__noinline int answer_solicitation(struct __sk_buff *skb, struct pkt *p)
{
	struct pod *pod = pod_on_link(skb);
	struct nd_frame *nd;
	struct addr source, target, gateway; /* copies: 6.1 takes no global function's argument for a key */

	nd = pkt_at(skb, 0, sizeof(*nd));
	if (!p || !pod || !nd || p->l4 != ETH_HLEN + sizeof(struct ipv6hdr) || skb->len != sizeof(*nd) ||
	    addr_is_zero(&p->tuple.src) || nd->option != ND_SOURCE_MAC || nd->option_len != 1)
		return CONTINUE; /* duplicate address detection is about the pod alone */
	__builtin_memcpy(&target, nd->target, sizeof(target));
	source = p->tuple.src;
	addr_gateway6(&gateway);
	if ((pod->flags & POD_CHAINED) && !addr_equal(&target, &gateway))
		return CONTINUE;
	if (is_on_link(skb, &target) || !has_mac_of(skb, pod) ||
	    (!addr_is_link_local6(&source) && !is_on_link(skb, &source)))
		return CONTINUE;
	nd = pkt_at(skb, 0, sizeof(*nd)); /* has_mac_of may have moved it */
	if (!nd)
		return CONTINUE;
	__builtin_memcpy(&nd->ip.daddr, &nd->ip.saddr, sizeof(struct addr));
	__builtin_memcpy(&nd->ip.saddr, &target, sizeof(struct addr));
	nd->ip.hop_limit = 255;
	nd->type = ICMPV6_NA;
	nd->flags = ND_ROUTER_ANSWER;
	nd->option = ND_TARGET_MAC;
	__builtin_memcpy(nd->mac, pod->host_mac, ETH_ALEN);
	nd->check = 0;
	nd->check = nd_checksum(nd);
	return answer_link(skb, &nd->eth, pod);
}

/* Has it been answered? CONTINUE: it was no question, or one for the stack. */
static __always_inline int answer_neighbour(struct __sk_buff *skb, struct pkt *p)
{
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return answer_arp(skb);
	return is_solicitation(p) ? answer_solicitation(skb, p) : CONTINUE;
}

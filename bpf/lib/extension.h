// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* IPv6 extension headers: what is behind them. */
#pragma once

#include "parse.h"

#define IPV6_EXTENSIONS 6 /* headers before the transport's that are read */

static __always_inline bool is_extension(__u8 proto)
{
	return proto == IPPROTO_HOPOPTS || proto == IPPROTO_ROUTING || proto == IPPROTO_DSTOPTS ||
	       proto == IPPROTO_FRAGMENT || proto == IPPROTO_AH;
}

/* One extension header: true if there may be another. */
static __always_inline bool skip_extension(struct __sk_buff *skb, struct pkt *p, __u8 *next)
{
	struct {
		__u8 next, len;
		__be16 off;
		__be32 id;
	} *ext;

	if (!is_extension(*next))
		return false;
	ext = pkt_at(skb, p->l4, sizeof(*ext));
	if (!ext) {
		p->rowless = 1;
		return false;
	}
	if (*next == IPPROTO_FRAGMENT) {
		if (ext->off & bpf_htons(0xfff9)) { /* neither offset nor more: atomic, RFC 6946 */
			p->fragment = ext->off & bpf_htons(0xfff8) ? LATER_FRAGMENT : FIRST_FRAGMENT;
			p->fragment_id = bpf_ntohl(ext->id);
		}
		p->l4 += 8;
	} else if (*next == IPPROTO_AH) {
		p->l4 += (ext->len + 2) * 4;
	} else {
		p->l4 += (ext->len + 1) * 8;
	}
	*next = ext->next;
	return p->fragment != LATER_FRAGMENT;
}

__noinline int skip_extensions(struct __sk_buff *skb, struct pkt *p)
{
	__u8 next;

	if (!p)
		return 0;
	next = p->tuple.proto;
	for (int i = 0; i < IPV6_EXTENSIONS; i++)
		if (!skip_extension(skb, p, &next))
			break;
	if (is_extension(next) && p->fragment != LATER_FRAGMENT)
		p->rowless = 1; /* the transport's is further away than we look */
	p->tuple.proto = next;
	return 0;
}

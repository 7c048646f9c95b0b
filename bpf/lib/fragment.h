// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Later fragments carry no ports: those of a translated flow follow their first one.
 * Those of an untranslated flow all go to the stack, the first too, since netfilter
 * must see the whole datagram or nothing of it.
 */
#pragma once

#include "parse.h"

#define FRAGMENT_TIMEOUT_NS (30 * NSEC_PER_SEC) /* net.ipv4.ipfrag_time */

static __always_inline void fragment_key(struct fragment_key *key, const struct pkt *p)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->src = p->tuple.src;
	key->dst = p->tuple.dst;
	key->id = p->fragment_id;
	/* IPv6 numbers datagrams per pair of addresses, and a later fragment shows the first
	 * header of what was cut, which need not be the transport's.
	 */
	key->proto = p->version == 4 ? p->tuple.proto : IPPROTO_FRAGMENT;
	key->side = p->tuple.side;
}

static __noinline int fragment_record(struct pkt *p)
{
	struct fragment value = { .tuple = p->tuple, .seen_ns = p->now };
	struct fragment_key key;

	fragment_key(&key, p);
	bpf_map_update_elem(&fragments, &key, &value, BPF_ANY);
	return 0;
}

/* Give a later fragment the ports of its first one: 1 if that one was translated. */
__noinline int fragment_restore(struct pkt *p)
{
	struct fragment_key key;
	struct fragment *first;

	if (!p)
		return 0;
	fragment_key(&key, p);
	first = bpf_map_lookup_elem(&fragments, &key);
	if (!first || (p->now > first->seen_ns && p->now - first->seen_ns > FRAGMENT_TIMEOUT_NS))
		return 0;
	p->tuple.proto = first->tuple.proto;
	p->tuple.sport = first->tuple.sport;
	p->tuple.dport = first->tuple.dport;
	return 1;
}

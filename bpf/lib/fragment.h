// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Later fragments carry no ports: those of a translated flow follow their first one.
 * Those of an untranslated flow all go to the stack, the first too, since netfilter
 * must see the whole datagram or nothing of it.
 */
#pragma once

#include "parse.h"

#define FRAGMENT_TIMEOUT_NS (30 * NSEC_PER_SEC) /* net.ipv4.ipfrag_time */
/* How far the network may have put a datagram's fragments out of order; a row that stays
 * longer would be taken for that of a datagram with the same id.
 */
#define ORPHAN_TIMEOUT_NS (NSEC_PER_SEC / 10)

static __always_inline void fragment_key(struct fragment_key *key, const struct pkt *p, enum side side)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->src = p->tuple.src;
	key->dst = p->tuple.dst;
	key->id = p->fragment_id;
	/* IPv6 numbers datagrams per pair of addresses, and a later fragment shows the first
	 * header of what was cut, which need not be the transport's.
	 */
	key->proto = p->version == 4 ? p->tuple.proto : IPPROTO_FRAGMENT;
	key->side = side;
}

static __always_inline bool fragment_younger(const struct fragment *row, const struct pkt *p, __u64 ns)
{
	return p->now <= row->seen_ns || p->now - row->seen_ns <= ns;
}

static __always_inline bool fragment_is_orphan(const struct fragment *row)
{
	return addr_is_zero(&row->tuple.src);
}

/* A datagram that is translated begins: 0 if it does not, as a later fragment came first,
 * which nobody can tell where to.
 */
static __noinline int fragment_begin(struct pkt *p, enum side side)
{
	struct fragment value = { .tuple = p->tuple, .seen_ns = p->now }, *row;
	struct fragment_key key;

	fragment_key(&key, p, side);
	row = bpf_map_lookup_elem(&fragments, &key);
	if (row && fragment_is_orphan(row) && fragment_younger(row, p, ORPHAN_TIMEOUT_NS))
		return 0;
	bpf_map_update_elem(&fragments, &key, &value, BPF_ANY);
	return 1;
}

/* Give a later fragment the ports of its first one: 1 if that one was translated. */
static __noinline int fragment_restore(struct pkt *p, enum side side)
{
	struct fragment orphan = { .seen_ns = p->now }, *first;
	struct fragment_key key;

	fragment_key(&key, p, side);
	first = bpf_map_lookup_elem(&fragments, &key);
	if (!first || !fragment_younger(first, p, FRAGMENT_TIMEOUT_NS)) {
		bpf_map_update_elem(&fragments, &key, &orphan, BPF_ANY);
		return 0;
	}
	if (fragment_is_orphan(first)) {
		first->seen_ns = p->now;
		return 0;
	}
	p->tuple.proto = first->tuple.proto;
	p->tuple.sport = first->tuple.sport;
	p->tuple.dport = first->tuple.dport;
	p->tuple.side = first->tuple.side;
	return 1;
}

/* A packet that the stack sends, and whose source may change: its fragments follow each other. */
static __always_inline void fragment_leave(struct pkt *p)
{
	if (p->fragment == FIRST_FRAGMENT)
		p->orphaned = !fragment_begin(p, SIDE_WIRE);
	if (p->fragment == LATER_FRAGMENT && !fragment_restore(p, SIDE_WIRE))
		p->orphaned = 1;
}

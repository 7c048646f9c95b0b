// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Addresses of both families in 16 bytes, and tuples of them. */
#pragma once

#include "types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

static __always_inline void addr_v4(struct addr *a, __be32 ip)
{
	*(__u64 *)a->ip = 0;
	*(__u32 *)(a->ip + 8) = bpf_htonl(0xffff);
	*(__u32 *)(a->ip + 12) = ip;
}

static __always_inline __be32 addr_to_v4(const struct addr *a)
{
	return *(const __u32 *)(a->ip + 12);
}

static __always_inline bool addr_equal(const struct addr *a, const struct addr *b)
{
	const __u64 *x = (const __u64 *)a->ip, *y = (const __u64 *)b->ip;

	return x[0] == y[0] && x[1] == y[1];
}

static __always_inline bool addr_is_zero(const struct addr *a)
{
	const __u64 *x = (const __u64 *)a->ip;

	return !(x[0] | x[1]);
}

static __always_inline bool addr_is_v4(const struct addr *a)
{
	return !*(const __u64 *)a->ip && *(const __u32 *)(a->ip + 8) == bpf_htonl(0xffff);
}

/* 127/8 or ::1 */
static __always_inline bool addr_is_loopback(const struct addr *a)
{
	const __u64 *x = (const __u64 *)a->ip;

	if (addr_is_v4(a))
		return a->ip[12] == 127;
	return !x[0] && x[1] == bpf_cpu_to_be64(1);
}

static __always_inline bool addr_is_unicast(const struct addr *a)
{
	if (addr_is_v4(a)) /* multicast, reserved and broadcast; "this network" */
		return a->ip[12] < 224 && a->ip[12] != 0;
	return a->ip[0] != 0xff && !addr_is_zero(a);
}

static __always_inline bool addr_is_link_local6(const struct addr *a)
{
	return a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

/* The gateway's end of every veth, and nobody's anywhere else. */
static __always_inline void addr_gateway4(struct addr *a)
{
	addr_v4(a, bpf_htonl(0xa9fe0101)); /* 169.254.1.1 */
}

static __always_inline void addr_gateway6(struct addr *a)
{
	*(__u64 *)a->ip = bpf_cpu_to_be64(0xfe80ULL << 48); /* fe80::1 */
	*(__u64 *)(a->ip + 8) = bpf_cpu_to_be64(1);
}

static __always_inline void tuple_reverse(struct tuple *to, const struct tuple *from)
{
	to->src = from->dst;
	to->dst = from->src;
	to->sport = from->dport;
	to->dport = from->sport;
	to->proto = from->proto;
	to->side = SIDE_FAST;
	to->pad = 0;
}

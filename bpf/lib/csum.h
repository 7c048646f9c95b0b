// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Internet checksum arithmetic (RFC 1071, RFC 1624) without a helper call. */
#pragma once

#include <linux/types.h>

/* 32-bit one's complement sum -> checksum field */
static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* 32-bit sum -> an equal one of 16 bits and a carry: several can be added up */
static __always_inline __u32 csum_fold32(__u32 sum)
{
	return (sum & 0xffff) + (sum >> 16);
}

/* What changing `from` and the address behind it into `to` and the one behind it adds
 * to a checksum. The v4-mapped prefixes cancel out.
 */
static __always_inline __u32 csum_diff_addresses(const struct addr *from, const struct addr *to)
{
	const __u32 *a = (const __u32 *)from->ip, *b = (const __u32 *)to->ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < 8; i++)
		sum += (__u64)(__u32)~a[i] + b[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return sum == 0xffffffff ? 0 : sum;
}

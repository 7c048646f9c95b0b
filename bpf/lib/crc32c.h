// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* SCTP's checksum (RFC 9260 appendix A) after a change of the ports. CRC32c is linear:
 * the change of the sum is the CRC of the changed bits alone, and what follows them only
 * multiplies it by x^8 a byte. So it depends on the length, not on the data.
 */
#pragma once

#include <linux/types.h>

#define CRC32C_POLY 0x82f63b78 /* Castagnoli's, lowest power in the top bit */

/* x^(8 * 2^i) modulo the polynomial */
static const __u32 crc32c_zeros[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
	0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

static __always_inline __u32 crc32c_times_x(__u32 a)
{
	return (a >> 1) ^ (CRC32C_POLY & -(a & 1));
}

static __always_inline __u32 crc32c_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 31; i >= 0; i--) {
		product ^= b & -(a >> i & 1);
		b = crc32c_times_x(b);
	}
	return product;
}

/* The CRC, without inversions, of 4 bytes (as loaded from memory) and then so many zero
 * bytes.
 */
static __always_inline __u32 crc32c_change(__u32 bits, __u32 zeros)
{
	for (int i = 0; i < 32; i++)
		bits = crc32c_times_x(bits);
	for (int i = 0; i < 16; i++)
		if (zeros >> i & 1)
			bits = crc32c_multiply(crc32c_zeros[i], bits);
	return bits;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Tables of ranges: the narrowest one that an address lies in. */
#pragma once

#include "addr.h"
#include "maps.h"

static __always_inline void *cidr_row(void *ranges, const struct addr *a)
{
	struct cidr_key key = { .prefix = 32 + 128, .version = addr_is_v4(a) ? 4 : 6 };

	__builtin_memcpy(key.addr, a, sizeof(key.addr));
	return bpf_map_lookup_elem(ranges, &key);
}

static __always_inline bool cidr_has(void *ranges, const struct addr *a)
{
	return cidr_row(ranges, a);
}

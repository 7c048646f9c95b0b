// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Ports to choose from, where a client's has to be changed. */
#pragma once

#include "maps.h"

static __always_inline __u16 random_port(void)
{
	return 1024 + bpf_get_prandom_u32() % (65536 - 1024);
}

/* Is the number one of those that masqueraded flows may have? */
__noinline int pool_holds(__u32 port)
{
	__u32 key = 0;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	if (!node)
		return 0;
	for (int i = 0; i < PORT_RANGES && node->ports[i].last; i++)
		if (port >= node->ports[i].first && port <= node->ports[i].last)
			return 1;
	return 0;
}

/* Any of them, each as likely as the other; 0: there is none. */
__noinline int pool_port(void)
{
	__u32 key = 0, n, size;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	if (!node || !node->port_count)
		return 0;
	n = bpf_get_prandom_u32() % node->port_count;
	for (int i = 0; i < PORT_RANGES; i++) {
		size = node->ports[i].last - node->ports[i].first + 1;
		if (n < size)
			return node->ports[i].first + n;
		n -= size;
	}
	return 0;
}

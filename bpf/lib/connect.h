// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A socket of the host, bound to another of its addresses, that connects to a hostPort on
 * 127.0.0.1. kubelet drops such packets in netfilter's OUTPUT unless they are translated
 * by then ("block incoming localnet connections", against CVE-2020-8558), which is before
 * any hook of a device. So it is the socket that is led to the pod.
 */
#pragma once

#include "hostport.h"

/* In the node's own network namespace; the hook is every socket's on the machine. */
static __always_inline bool is_nodes_socket(struct bpf_sock_addr *ctx)
{
	__u32 key = 0;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	return node && node->netns_cookie && bpf_get_netns_cookie(ctx) == node->netns_cookie;
}

static __always_inline void connect_to_hostport(struct bpf_sock_addr *ctx)
{
	struct hostport *h;
	struct addr to;
	__be32 from;

	if (ctx->user_ip4 != bpf_htonl(0x7f000001) || !ctx->sk)
		return;
	from = ctx->sk->src_ip4;
	if (!from || (bpf_ntohl(from) >> 24) == 127 || !is_nodes_socket(ctx))
		return;
	addr_v4(&to, ctx->user_ip4);
	h = hostport_row(&to, bpf_ntohs(ctx->user_port), ctx->protocol);
	if (!h || !(h->flags & HOSTPORT_LOOPBACK) || generation_of(&h->pod4) != h->generation)
		return;
	ctx->user_ip4 = addr_to_v4(&h->pod4);
	ctx->user_port = bpf_htons(h->port);
}

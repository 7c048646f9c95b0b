// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the host knows of a tuple: netfilter's conntrack (kfuncs, 6.1) and its sockets. */
#pragma once

#include "parse.h"

/* Only pointed to; complete, since a forward declaration does not match the kernel's BTF. */
struct nf_conn {
	unsigned long status;
} __attribute__((preserve_access_index));

/* As of 6.1; later kernels take the shorter size too. */
struct bpf_ct_opts___v61 {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple__sz,
					 struct bpf_ct_opts___v61 *opts, __u32 opts__sz) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *ct) __ksym __weak;

enum ct_known {
	CT_UNKNOWN = 0,
	CT_REQUEST = 1, /* the tuple is a flow's original direction */
	CT_REPLY = 2,
};

static __always_inline __u32 sock_tuple(struct bpf_sock_tuple *to, const struct tuple *t)
{
	__builtin_memset(to, 0, sizeof(*to));
	if (addr_is_v4(&t->src)) {
		to->ipv4.saddr = addr_to_v4(&t->src);
		to->ipv4.daddr = addr_to_v4(&t->dst);
		to->ipv4.sport = bpf_htons(t->sport);
		to->ipv4.dport = bpf_htons(t->dport);
		return sizeof(to->ipv4);
	}
	__builtin_memcpy(to->ipv6.saddr, &t->src, sizeof(struct addr));
	__builtin_memcpy(to->ipv6.daddr, &t->dst, sizeof(struct addr));
	to->ipv6.sport = bpf_htons(t->sport);
	to->ipv6.dport = bpf_htons(t->dport);
	return sizeof(to->ipv6);
}

/* conntrack can be asked about TCP and UDP alone. */
__noinline int ct_lookup(struct __sk_buff *skb, struct tuple *t)
{
	struct bpf_ct_opts___v61 opts = { .netns_id = -1 };
	struct bpf_sock_tuple st;
	struct nf_conn *ct;

	if (!t || !have_conntrack || (t->proto != IPPROTO_TCP && t->proto != IPPROTO_UDP))
		return CT_UNKNOWN;
	opts.l4proto = t->proto;
	if (sock_tuple(&st, t) == sizeof(st.ipv4))
		ct = bpf_skb_ct_lookup(skb, &st, sizeof(st.ipv4), &opts, sizeof(opts));
	else
		ct = bpf_skb_ct_lookup(skb, &st, sizeof(st.ipv6), &opts, sizeof(opts));
	if (!ct)
		return CT_UNKNOWN;
	bpf_ct_release(ct);
	return opts.dir ? CT_REPLY : CT_REQUEST;
}

enum host_socket {
	SOCKET_NONE = 0,
	SOCKET_LISTENS,	  /* TCP; UDP whether connected or not */
	SOCKET_CONNECTED, /* TCP, TIME_WAIT too */
};

static __always_inline int host_tcp_socket(struct __sk_buff *skb, struct bpf_sock_tuple *st, __u32 size)
{
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, st, size, BPF_F_CURRENT_NETNS, 0);
	int known;

	if (!sk)
		return SOCKET_NONE;
	known = sk->state == BPF_TCP_LISTEN ? SOCKET_LISTENS : SOCKET_CONNECTED;
	bpf_sk_release(sk);
	return known;
}

static __always_inline int host_udp_socket(struct __sk_buff *skb, struct bpf_sock_tuple *st, __u32 size)
{
	struct bpf_sock *sk = bpf_sk_lookup_udp(skb, st, size, BPF_F_CURRENT_NETNS, 0);

	if (!sk)
		return SOCKET_NONE;
	bpf_sk_release(sk);
	return SOCKET_LISTENS;
}

/* The socket of the host that a packet of this tuple would meet. */
__noinline int host_socket(struct __sk_buff *skb, struct tuple *t)
{
	struct bpf_sock_tuple st;

	if (!t || (t->proto != IPPROTO_TCP && t->proto != IPPROTO_UDP))
		return SOCKET_NONE;
	if (sock_tuple(&st, t) == sizeof(st.ipv4))
		return t->proto == IPPROTO_TCP ? host_tcp_socket(skb, &st, sizeof(st.ipv4)) :
						 host_udp_socket(skb, &st, sizeof(st.ipv4));
	return t->proto == IPPROTO_TCP ? host_tcp_socket(skb, &st, sizeof(st.ipv6)) :
					 host_udp_socket(skb, &st, sizeof(st.ipv6));
}

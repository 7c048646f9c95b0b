// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A GSO packet in a tunnel of the pod's own (vxlan, geneve, gre, ipip) is cut once, behind
 * us, and every piece has the inner headers too. Only the kernel knows where those are:
 * fields of struct sk_buff that a program has to read as any kernel memory (CO-RE), since
 * struct __sk_buff does not show them.
 */
#pragma once

#include "parse.h"

/* The kinds of __builtin_preserve_field_info */
#define FIELD_OFFSET 0
#define FIELD_SIZE 1
#define FIELD_LSHIFT 4
#define FIELD_RSHIFT 5

struct sk_buff___inner {
	__u8 encapsulation : 1;
	__u16 inner_transport_header; /* offsets from one and the same byte */
	__u16 inner_network_header;
	__u16 mac_header;
} __attribute__((preserve_access_index));

static __always_inline bool is_encapsulated(const struct sk_buff___inner *in)
{
	__u64 bits = 0;

	bpf_probe_read_kernel(&bits, __builtin_preserve_field_info(in->encapsulation, FIELD_SIZE),
			      (void *)in + __builtin_preserve_field_info(in->encapsulation, FIELD_OFFSET));
	bits <<= __builtin_preserve_field_info(in->encapsulation, FIELD_LSHIFT);
	return bits >> __builtin_preserve_field_info(in->encapsulation, FIELD_RSHIFT);
}

/* Bytes of all headers of each piece, outer and inner; 0: it is in no tunnel. */
static __noinline __u32 tunnel_headers(struct __sk_buff *skb)
{
	struct sk_buff___inner *in = (void *)skb;
	__u16 start = 0, network = 0, transport = 0;
	__u8 version = 0, proto = 0, words = 0;

	if (!have_probe_read || !is_encapsulated(in))
		return 0;
	bpf_probe_read_kernel(&start, sizeof(start), &in->mac_header);
	bpf_probe_read_kernel(&network, sizeof(network), &in->inner_network_header);
	bpf_probe_read_kernel(&transport, sizeof(transport), &in->inner_transport_header);
	network -= start;
	transport -= start;
	bpf_skb_load_bytes(skb, network, &version, 1);
	bpf_skb_load_bytes(skb, network + (version >> 4 == 6 ? 6 : 9), &proto, 1);
	if (proto != IPPROTO_TCP)
		return transport + sizeof(struct udphdr);
	bpf_skb_load_bytes(skb, transport + 12, &words, 1);
	return transport + (words >> 4) * 4;
}

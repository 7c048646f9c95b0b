// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a step says of a packet, and how a drop is counted. */
#pragma once

#include "maps.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* UAPI pkt_cls.h and, with the same values, TCX_NEXT, TCX_DROP, TCX_REDIRECT */
#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2
#define TC_ACT_REDIRECT 7

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A step returns a TC verdict (> 0), a negative drop reason, or one of these. */
#define TO_STACK 0     /* not ours: the stack goes on with it */
#define CONTINUE 0x100 /* this step has nothing to say, the next one may */

static __noinline int count_drop(struct __sk_buff *skb, enum hook hook, enum drop_reason reason)
{
	struct counter_key key = { .ifindex = skb->ifindex, .hook = hook, .reason = reason };
	struct counter fresh = { .packets = 1, .bytes = skb->len };
	struct counter *c = bpf_map_lookup_elem(&counters, &key);

	if (c) {
		c->packets++;
		c->bytes += skb->len;
	} else {
		bpf_map_update_elem(&counters, &key, &fresh, BPF_NOEXIST);
	}
	return TC_ACT_SHOT;
}

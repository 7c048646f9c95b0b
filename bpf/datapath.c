// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include <linux/bpf.h>
#include "lib/maps.h"

#define TC_ACT_UNSPEC (-1)

SEC("tc") int from_pod(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
SEC("tc") int to_pod(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
SEC("tc") int from_uplink(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
SEC("tc") int to_uplink(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
SEC("tc") int from_host(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }

char _license[] SEC("license") = "Dual BSD/GPL";

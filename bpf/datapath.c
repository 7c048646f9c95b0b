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
__attribute__((noinline)) int enums(enum direction a, enum side b, enum hook c, enum drop_reason d, enum feature e) { return a + b + c + d + e; }
__attribute__((noinline)) int enums2(enum pod_flag a, enum hostport_flag b, enum flow_action c, enum flow_flag d, enum flow_state e) { return a + b + c + d + e; }
SEC("tc") int x(struct __sk_buff *skb) { return enums(skb->len, 0, 0, 0, 0) + enums2(skb->len, 0, 0,0, 0); }

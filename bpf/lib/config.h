// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What is fixed when the programs are loaded (set in loader/config.go), and the
 * constants that both sides of a hook must agree on.
 */
#pragma once

#include <linux/types.h>

#define NSEC_PER_SEC 1000000000ULL

/* How long a flow row is believed without a packet. The values are those of
 * netfilter's conntrack where it has one for the state, so that a flow lives as long
 * beside it as in it.
 */
volatile const __u64 tcp_syn_timeout_ns = 60 * NSEC_PER_SEC;
volatile const __u64 tcp_timeout_ns = 5 * 86400 * NSEC_PER_SEC;
/* A closed TCP row keeps its reply tuple from other called addresses as long as the
 * pod's own TIME_WAIT lasts (TCP_TIMEWAIT_LEN).
 */
volatile const __u64 tcp_closed_timeout_ns = 60 * NSEC_PER_SEC;
/* A masqueraded flow's port stays its own this long after it closed, or its pod went:
 * the far side may be in TIME_WAIT, and its late packets are not for the next pod.
 */
volatile const __u64 masquerade_closed_timeout_ns = 120 * NSEC_PER_SEC;
volatile const __u64 udp_unanswered_timeout_ns = 30 * NSEC_PER_SEC;
volatile const __u64 udp_timeout_ns = 180 * NSEC_PER_SEC;
volatile const __u64 other_timeout_ns = 600 * NSEC_PER_SEC;

/* Time is jiffies * tick_ns + clock_base_ns: CLOCK_MONOTONIC to within two ticks. The
 * count is read inline, where the helper of the coarse clock costs 40 ns a packet.
 */
volatile const __u64 tick_ns = 4000000;
volatile const __u64 clock_base_ns = 0;

/* What a pod whose shaper is gone may send ahead of its rate, at least. */
volatile const __u64 egress_tolerance_ns = 36000000;

/* Does the kernel have the conntrack kfuncs? Their weak symbols cannot be tested for
 * instead: cilium/ebpf patches the load of an absent one's address as if it were a call.
 */
volatile const __u8 have_conntrack = 0;

/* May programs read kernel memory? A kernel that is locked down to confidentiality says no. */
volatile const __u8 have_probe_read = 0;

/* In skb->tc_index of a packet that we redirect to a device whose egress hook is
 * ours too: it has been dealt with.
 */
#define REDIRECT_STAMP 0xc1e7

#define LO_IFINDEX 1 /* in every network namespace */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What whoever traces gets (map `events`) and asks for (map `trace`); trace.h fills it. */
#pragma once

#include "types.h"

enum verdict : __u8 {
	VERDICT_PASS = 1,     /* goes on: to the stack, or from it */
	VERDICT_REDIRECT = 2, /* leaves the stack aside, to out_ifindex */
	VERDICT_DROP = 3,
	VERDICT_REDIRECTED = 4, /* comes from another hook's redirect, and passes */
};

/* events: one packet at one hook, as whoever traces wants it */
struct event {
	__u64 time_ns;
	struct tuple tuple; /* as it came; not IP: zero, but ARP's sender and target */
	struct tuple to;    /* as it leaves */
	__u32 ifindex;	    /* the device of the hook */
	__u32 out_ifindex;  /* of a redirect */
	__u32 length;	    /* bytes of the frame; of a GSO packet, all of it */
	__u16 ethertype;
	enum hook hook;
	enum drop_reason reason; /* of a drop */
	enum verdict verdict;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 fragment; /* 1: the first, 2: a later one */
	__u16 pad;
};

enum trace_flag : __u32 {
	TRACE_DROPS_ONLY = 1 << 0,
};

/* trace: the one row (key 0) of who listens to `events`, and to what; zero: anything */
struct trace_filter {
	__u64 until_ns;	  /* 0: nobody listens. Who does moves it on, and may be killed */
	__u64 lost;	  /* events for which there was no room */
	struct addr host; /* source or destination, as it came or as it leaves */
	__u32 ifindex;	  /* the pod's host side: packets there, and to or from its addresses */
	enum trace_flag flags;
	__u16 port; /* as host */
	__u8 proto; /* ICMP: that of IPv6 too */
	__u8 pad;
	__u32 pad2;
};

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What culvert-ipam keeps in the map `addresses`. */
#pragma once

#include "types.h"

enum address_kind : __u32 {
	ADDRESS_LEASE = 0,   /* of an address: who has it, or had it last */
	ADDRESS_OWNER = 1,   /* of an attachment: what it has; the key's addr is a hash of its names */
	ADDRESS_CURSOR = 2,  /* of a set of ranges, by its first address: the one given last */
	ADDRESS_REBUILT = 3, /* the one row that says that the pods that live have their leases */
};

enum address_state : __u32 {
	ADDRESS_HELD = 1,
	ADDRESS_RELEASED = 2,
};

#define OWNER_ADDRS 8

/* addresses: what culvert-ipam gave. No program reads it (all text NUL-terminated). */
struct address_key {
	char network[64];
	struct addr addr;
	enum address_kind kind;
	__u32 pad;
};

struct address {
	__u64 since_ns; /* held, or released, since then */
	char container[128];
	char ifname[16]; /* in the container */
	enum address_state state;
	__u32 pad;
	struct addr addrs[OWNER_ADDRS]; /* of an owner, and a cursor's one; unused: all zero */
	__u64 netns;			/* of an owner: inode of its network namespace */
	char netns_path[128];		/* of an owner */
};

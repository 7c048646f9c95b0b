// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* hostPort: a port of the node, answered by a pod. */
#pragma once

#include "cidr.h"
#include "pod.h"
#include "route.h"

/* The row for this destination: a specific address beats the wildcard. */
static __always_inline struct hostport *hostport_row(const struct addr *addr, __u16 port, __u8 proto)
{
	struct hostport_key key = { .addr = *addr, .port = port, .proto = proto };
	struct hostport *h = bpf_map_lookup_elem(&hostports, &key);

	if (h)
		return h;
	__builtin_memset(&key.addr, 0, sizeof(key.addr));
	return bpf_map_lookup_elem(&hostports, &key);
}

/* Would a packet of this tuple call a hostPort, if none of its rows were there? */
__noinline int is_hostport(struct tuple *t)
{
	return t && hostport_row(&t->dst, t->dport, t->proto);
}

/* 127.0.0.1 and ::1 alone: the rest of 127/8 belongs to others. */
static __always_inline bool hostport_on_loopback(const struct addr *a)
{
	return !addr_is_v4(a) || addr_to_v4(a) == bpf_htonl(0x7f000001);
}

/* Does p call a hostPort? Then f's destination becomes the pod behind it. Locality is
 * asked last, it costs a route lookup.
 */
static __always_inline bool hostport_target(struct __sk_buff *skb, struct pkt *p, struct flow *f, bool local)
{
	const struct addr *addr;
	struct hostport *h;
	struct pod *pod;

	if (p->fragment == LATER_FRAGMENT || is_icmp(p) || !p->tuple.dport)
		return false;
	h = hostport_row(&p->tuple.dst, p->tuple.dport, p->tuple.proto);
	if (!h)
		return false;
	addr = p->version == 4 ? &h->pod4 : &h->pod6;
	pod = pod_find(addr);
	if (!pod || pod->generation != h->generation)
		return false;
	if (addr_is_loopback(&p->tuple.dst) &&
	    (!(h->flags & HOSTPORT_LOOPBACK) || !hostport_on_loopback(&p->tuple.dst)))
		return false;
	if (cidr_has(&excluded, &p->tuple.dst))
		return false;
	if (!local && !addr_is_local(skb, p))
		return false;
	f->dst = *addr;
	f->dport = h->port;
	f->dst_generation = pod->generation;
	f->action = FLOW_TO_POD;
	f->flags = FLOW_HOSTPORT;
	return true;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Masquerade: what a pod sends outside leaves with an address of the uplink. It is the
 * last thing before the wire, behind the stack, so netfilter sees the pod's own address
 * in both directions. A flow's request row is of side "wire"; its reply row, in
 * from_uplink, gives the packet back to the stack.
 *
 * So does what is no pod's leave by the tunnel, if its source is not the tunnel's: a service's call
 * of the node's own has the uplink's, as its socket chose it by the way to the service's address.
 */
#pragma once

#include "apart.h"
#include "claim.h"
#include "fragment.h"
#include "nat.h"

/* The address that the device has in config; of several the first. */
static __always_inline bool config_address(struct __sk_buff *skb, const struct pkt *p, struct addr *a)
{
	__u32 key = 0;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);

	if (!node)
		return false;
	for (int i = 0; i < UPLINKS; i++) {
		if (node->uplinks[i].ifindex != skb->ifindex)
			continue;
		*a = p->version == 4 ? node->uplinks[i].addr4 : node->uplinks[i].addr6;
		return !addr_is_zero(a);
	}
	return false;
}

/* The address that the node itself would send from to there by this uplink. The FIB
 * tells it from 6.7 on; before, BPF_FIB_LOOKUP_SRC is -EINVAL.
 */
__noinline int uplink_address(struct __sk_buff *skb, struct pkt *p, struct addr *a)
{
	struct bpf_fib_lookup fib;
	struct addr any = {};
	long rc;

	if (!p || !a)
		return 0;
	fib_request(skb, &fib, p, &any, &p->tuple.dst);
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), BPF_FIB_LOOKUP_OUTPUT | BPF_FIB_LOOKUP_SRC);
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return config_address(skb, p, a);
	if (p->version == 4)
		addr_v4(a, fib.ipv4_src);
	else
		__builtin_memcpy(a, fib.ipv6_src, sizeof(*a));
	return p->version == 4 ? fib.ipv4_src != 0 : !addr_is_zero(a) && !addr_is_link_local6(a);
}

/* Would the tunnel's far end not take the source from us? It takes the tunnel device's addresses,
 * those of the ranges that the node had before too. Where none is known, all may be.
 */
static __noinline int is_strange(struct __sk_buff *skb, const struct pkt *p)
{
	__u32 key = 0;
	struct node_config *node = bpf_map_lookup_elem(&config, &key);
	const struct addr *own;
	int strange = 0;

	if (!node || !addr_is_unicast(&p->tuple.src)) /* a martian */
		return 0;
	for (int i = 0; i < UPLINKS; i++) {
		if (node->uplinks[i].ifindex != skb->ifindex)
			continue;
		own = p->version == 4 ? &node->uplinks[i].addr4 : &node->uplinks[i].addr6;
		if (addr_equal(own, &p->tuple.src))
			return 0;
		if (!addr_is_zero(own))
			strange = 1;
	}
	return strange;
}

/* The address for the flow that masquerade_open opens; one of the host's keeps its own. */
static __always_inline bool masquerade_address(struct __sk_buff *skb, struct pkt *p, __u64 generation,
					       struct addr *a)
{
	if (p->strange)
		return config_address(skb, p, a);
	return !generation || uplink_address(skb, p, a);
}

/* Below the pool: for a connection whose row is lost, and with it its port. One of the
 * pool could be that of another lost one, which lives on at the far side and would not
 * reset this one.
 */
static __always_inline __u16 stray_port(void)
{
	return 1024 + bpf_get_prandom_u32() % (20000 - 1024);
}

/* Open the flow of a packet that leaves by this device and must not say its source; one
 * of the host's (generation 0) that may keeps its address and gets another port.
 * FLOW_OPENED, or a drop.
 */
static __noinline int masquerade_open(struct __sk_buff *skb, struct pkt *p, __u64 generation)
{
	struct flow f;

	flow_request(&f, p, generation);
	if (!masquerade_address(skb, p, generation, &f.src))
		return -DROP_NO_ADDRESS;
	f.action = FLOW_TO_STACK;
	f.flags = FLOW_MASQUERADE | FLOW_TRANSLATE;
	if (p->tuple.proto == IPPROTO_TCP && !is_syn(p))
		f.state = FLOW_TCP_MID;
	if (has_changeable_port(p)) {
		f.sport = p->hint ? p->hint : p->tuple.sport;
		if (!pool_holds(f.sport))
			f.sport = f.state & FLOW_TCP_MID ? stray_port() : pool_port();
		if (!f.sport)
			return -DROP_PORTS_EXHAUSTED;
	}
	if (claim_reply(skb, p, &f, FLOW_TO_STACK) != CLAIM_DONE)
		return -DROP_PORTS_EXHAUSTED;
	flow_begin(&p->tuple, &f, p->lasting);
	return FLOW_OPENED;
}

/* Does the packet answer what the stack brought? netfilter's conntrack knows it, or a row of
 * note_stack_request.
 */
static __always_inline bool is_stack_answer(struct __sk_buff *skb, struct pkt *p)
{
	/* An echo reply's later fragments are known by the port of the first one. */
	return is_echo_reply(p) || (is_icmp(p) && p->tuple.dport) || ct_lookup(skb, &p->tuple) == CT_REPLY;
}

/* May the pod's packet that no row knows stay as it is? An answer must. */
static __noinline int masquerade_spares(struct __sk_buff *skb, struct pkt *p)
{
	return !addr_is_unicast(&p->tuple.dst) || cidr_has(&nonmasq, &p->tuple.dst) ||
	       cidr_has(&remotes, &p->tuple.dst) || is_stack_answer(skb, p);
}

/* Must a packet that is no pod's be changed: as its source is strange, unless it is an answer, which
 * nobody would know from another, or as a masqueraded flow has the number that the node itself sends
 * by, to the same place?
 */
static __noinline int masquerade_meets(struct __sk_buff *skb, struct pkt *p)
{
	struct tuple reply;
	struct flow *f;
	bool half;

	if (p->strange)
		return !is_stack_answer(skb, p);
	if (p->tuple.proto == IPPROTO_TCP && !is_syn(p))
		return 0;
	tuple_reverse(&reply, &p->tuple);
	f = flow_row(&reply, &half);
	return f && f->flags & FLOW_MASQUERADE && !claim_expired(f, half, p);
}

/* To the wire with an address of the node's, or with the pod's and another port. CONTINUE: as it
 * is. `masks` says whether the pod (generation 0: the host) is masqueraded at all.
 */
static __always_inline int masquerade(struct __sk_buff *skb, struct pkt *p, __u64 generation, bool masks)
{
	struct flow *f;
	bool half;
	int verdict;

	p->tuple.side = SIDE_WIRE;
	f = flow_find(p, generation, &half);
	if (!f) {
		if (p->closed)
			forget_closed(p);
		if (generation && (!masks || masquerade_spares(skb, p)))
			verdict = apart_open(skb, p, generation);
		else if (!generation && !masquerade_meets(skb, p))
			return CONTINUE;
		else if (p->orphaned)
			return -DROP_FRAGMENT_ORDER;
		else
			verdict = masquerade_open(skb, p, generation);
		if (verdict != FLOW_OPENED)
			return verdict;
		f = flow_begun(p, &half);
		if (!f)
			return -DROP_NO_ROOM;
	}
	if (!(f->flags & FLOW_TRANSLATE))
		return TO_STACK;
	if (p->orphaned)
		return -DROP_FRAGMENT_ORDER;
	f = flow_touch(p, f, half, true);
	if (!f)
		return -DROP_NO_ROOM;
	translate(skb, p, f, 0);
	return TO_STACK;
}

/* A fragment of a datagram that the fast path leaves to the stack: its answer, which need
 * not be cut, must not be masqueraded.
 */
static __noinline int note_stack_request(struct pkt *p)
{
	struct tuple reply;

	tuple_reverse(&reply, &p->tuple);
	reply.side = SIDE_WIRE;
	return leave_to_stack(p, &reply);
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* Every packet's story. One program a hook, each a list of steps; a step is explained
 * in the header of its name. What is not ours goes on to whoever is next (TCX_NEXT).
 */
#include "lib/bandwidth.h"
#include "lib/connect.h"
#include "lib/forward.h"
#include "lib/neighbour.h"
#include "lib/remote.h"
#include "lib/stack.h"
#include "lib/trace.h"

/* Pod to anywhere: tc ingress, host side of the pod's veth. */
SEC("tc")
int from_pod(struct __sk_buff *skb)
{
	int verdict = TO_STACK;
	struct pod *pod = NULL;
	struct pkt p;

	skb->tc_index = 0;
	if (parse(skb, &p) == CONTINUE) {
		pod = pod_of_sender(skb, &p, &verdict);
		if (!pod && verdict != TO_STACK)
			return finish(skb, &p, HOOK_FROM_POD, verdict);
	} else if (is_tagged(skb) && !is_unchecked(skb)) {
		/* the stack takes a priority tag off and goes on */
		return finish(skb, &p, HOOK_FROM_POD, -DROP_SOURCE);
	}
	if (!pod || pod->ifindex != skb->ifindex || (pod->flags & POD_LIMIT_EGRESS)) {
		verdict = egress_limit(skb, &p);
		if (verdict != CONTINUE)
			return finish(skb, &p, HOOK_FROM_POD, verdict);
	}
	if (unlikely(!pod || p.rowless)) {
		verdict = answer_neighbour(skb, &p);
		if (verdict != CONTINUE || !pod)
			return finish(skb, &p, HOOK_FROM_POD, verdict);
	}
	/* The frame is for us, whatever MAC address the veth has been given since. Chained, the
	 * host side may be a bridge's port.
	 */
	if (skb->pkt_type != PACKET_HOST && !(pod->flags & POD_CHAINED))
		bpf_skb_change_type(skb, PACKET_HOST);

	return finish(skb, &p, HOOK_FROM_POD, forward(skb, &p, pod->generation, HOOK_FROM_POD));
}

/* Stack to pod: tc egress, host side of the pod's veth. */
SEC("tc")
int to_pod(struct __sk_buff *skb)
{
	struct pkt p;

	if (take_stamp(skb))
		return finish_redirected(skb, HOOK_TO_POD);
	if (parse(skb, &p) != CONTINUE)
		return TC_ACT_UNSPEC;

	return finish(skb, &p, HOOK_TO_POD, stack_to_pod(skb, &p));
}

/* Wire to anywhere: tc ingress of the uplinks. */
SEC("tc")
int from_uplink(struct __sk_buff *skb)
{
	struct pkt p;

	skb->tc_index = 0;
	if (skb->pkt_type != PACKET_HOST || parse(skb, &p) != CONTINUE)
		return TC_ACT_UNSPEC;

	if (addr_is_loopback(&p.tuple.src) || addr_is_loopback(&p.tuple.dst))
		return finish(skb, &p, HOOK_FROM_UPLINK, -DROP_LOOPBACK);

	return finish(skb, &p, HOOK_FROM_UPLINK, forward(skb, &p, 0, HOOK_FROM_UPLINK));
}

/* Stack to wire: tc egress of the uplinks. */
SEC("tc")
int to_uplink(struct __sk_buff *skb)
{
	struct pkt p;

	if (take_stamp(skb))
		return finish_redirected(skb, HOOK_TO_UPLINK);
	if (parse(skb, &p) != CONTINUE)
		return TC_ACT_UNSPEC;

	return finish(skb, &p, HOOK_TO_UPLINK, stack_to_wire(skb, &p, HOOK_TO_UPLINK));
}

/* Another node's pods to anywhere: tc ingress of the tunnel device. There is no frame there that
 * none of ours has sent.
 */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	struct pkt p;

	skb->tc_index = 0;
	if (parse(skb, &p) != CONTINUE || tunnel_source(skb, &p) != CONTINUE)
		return finish(skb, &p, HOOK_FROM_TUNNEL, -DROP_TUNNEL_SOURCE);

	if (addr_is_loopback(&p.tuple.dst))
		return finish(skb, &p, HOOK_FROM_TUNNEL, -DROP_LOOPBACK);

	return finish(skb, &p, HOOK_FROM_TUNNEL, forward(skb, &p, 0, HOOK_FROM_UPLINK));
}

/* Stack, or fast path, to other nodes' pods: tc egress of the tunnel device. What it is not told
 * where to send, multicast and the like, the device drops.
 */
SEC("tc")
int to_tunnel(struct __sk_buff *skb)
{
	bool redirected = take_stamp(skb);
	int verdict = TO_STACK;
	struct pkt p;

	if (parse(skb, &p) != CONTINUE || !addr_is_unicast(&p.tuple.dst))
		return TC_ACT_UNSPEC;
	if (!redirected)
		verdict = stack_to_wire(skb, &p, HOOK_TO_TUNNEL);
	if (verdict >= 0)
		verdict = tunnel_send(skb, &p);
	if (redirected && verdict == TO_STACK)
		return finish_redirected(skb, HOOK_TO_TUNNEL);

	return finish(skb, &p, HOOK_TO_TUNNEL, verdict);
}

/* The host to itself: tc egress of lo, while there is a hostPort. */
SEC("tc")
int from_host(struct __sk_buff *skb)
{
	struct pkt p;

	if (parse(skb, &p) != CONTINUE)
		return TC_ACT_UNSPEC;

	return finish(skb, &p, HOOK_FROM_HOST, forward(skb, &p, 0, HOOK_FROM_HOST));
}

/* The host's socket to itself: connect() in the root cgroup, while a hostPort is open on
 * loopback.
 */
SEC("cgroup/connect4")
int from_socket(struct bpf_sock_addr *ctx)
{
	connect_to_hostport(ctx);
	return 1; /* go on */
}

char _license[] SEC("license") = "Dual BSD/GPL";

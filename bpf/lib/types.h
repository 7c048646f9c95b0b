// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables: one struct a key and a value, read by Go through BTF and by people
 * through `bpftool map dump`. Addresses are 16 bytes (IPv4 as ::ffff:a.b.c.d, so its
 * bytes are the last four), ports are in host order, times are CLOCK_MONOTONIC ns.
 * Every struct is padded by hand, since its bytes may be a hash key.
 */
#pragma once

#include <linux/types.h>

struct addr {
	__u8 ip[16];
} __attribute__((aligned(8)));

enum side : __u8 {
	SIDE_FAST = 0,	/* from a pod, the wire or lo: before the stack */
	SIDE_STACK = 1, /* on the way from the stack to a pod */
	SIDE_WIRE = 2,	/* on the way from the stack to the wire */
};

/* What a packet says of itself, or what it is made to say. */
struct tuple {
	struct addr src;
	struct addr dst;
	__u16 sport; /* ICMP echo request: identifier; no ports: 0 */
	__u16 dport; /* ICMP echo reply: identifier */
	__u8 proto;
	enum side side; /* which hook's packets the row is about */
	__u16 pad;
};

enum pod_flag : __u32 {
	POD_SOURCE_CHECK = 1 << 0,
	POD_LIMIT_INGRESS = 1 << 1, /* shaper on the host side: reach it by bpf_redirect */
	POD_LIMIT_EGRESS = 1 << 2,
	POD_MASQUERADE = 1 << 3,
	POD_CHAINED = 1 << 4, /* direct flows stay in the stack */
};

/* pods: address -> how to reach the pod and what its packets are held to */
struct pod_key {
	struct addr addr;
};

struct pod {
	__u64 generation; /* of the attachment; a flow row of another one is dead */
	__u32 ifindex;	  /* host side of the veth */
	enum pod_flag flags;
	__u32 netns; /* inode: interfaces of one container share it */
	__u32 mtu;
	__u8 mac[6];	  /* the pod's interface */
	__u8 host_mac[6]; /* the host side */
	__u32 pad;
};

#define IFACE_ADDRS 8

/* ifaces: host ifindex -> the attachment that owns it (all text NUL-terminated) */
struct iface_key {
	__u32 ifindex;
};

struct iface {
	__u64 generation;
	__u64 netns; /* inode of the container's network namespace */
	char network[64];
	char container[128];
	char ifname[16]; /* in the container */
	char host_ifname[16];
	char netns_path[128];
	struct addr addrs[IFACE_ADDRS]; /* unused: all zero */
	enum pod_flag flags;
	__u32 mtu;
};

enum hostport_flag : __u16 {
	HOSTPORT_LOOPBACK = 1 << 0, /* also on 127.0.0.1 and ::1 */
};

/* hostports: address and port of the node -> pod; address :: is every local address */
struct hostport_key {
	struct addr addr;
	__u16 port;
	__u8 proto;
	__u8 pad;
	__u32 pad2;
};

struct hostport {
	struct addr pod4; /* zero: the pod has none of that family, not ours */
	struct addr pod6;
	__u64 generation; /* of the owner */
	__u32 ifindex;	  /* of the owner */
	__u16 port;	  /* the container's */
	enum hostport_flag flags;
};

enum direction : __u32 {
	TO_POD = 1,   /* ingress, in CNI's words */
	FROM_POD = 2, /* egress */
};

/* limits: one row a pod and direction */
struct limit_key {
	__u32 ifindex;
	enum direction direction;
};

/* What holds the rate: a qdisc on the device that sends, as the kernel had it at ADD. */
enum shaper : __u32 {
	SHAPER_TBF = 1,		 /* token bucket over one queue */
	SHAPER_TBF_FQ_CODEL = 2, /* token bucket over a queue a flow */
};

struct limit {
	__u64 rate_bits;  /* a second; 0: lifted at run time */
	__u64 burst_bits; /* after the cap */
	__u64 clock_ns;	  /* egress: theoretical arrival time of the next packet */
	enum shaper shaper;
	__u32 pad;
};

enum flow_action : __u16 {
	FLOW_TO_POD = 1,   /* redirect to the pod of dst */
	FLOW_TO_WIRE = 2,  /* route by the FIB and redirect */
	FLOW_TO_HOST = 3,  /* into lo: the host called */
	FLOW_TO_STACK = 4, /* translate if need be, then up the stack */
};

enum flow_flag : __u16 {
	FLOW_TRANSLATE = 1 << 0,  /* src, dst or a port differs from the key */
	FLOW_REPLY = 1 << 1,	  /* the reply's row */
	FLOW_HOSTPORT = 1 << 2,	  /* the request called a hostPort */
	FLOW_MASQUERADE = 1 << 3, /* the request left with an address of the node */
};

enum flow_state : __u32 {
	FLOW_ANSWERED = 1 << 0,
	FLOW_FIN_SELF = 1 << 1, /* seen in this row's direction */
	FLOW_FIN_PEER = 1 << 2,
	FLOW_RESET = 1 << 3,
	FLOW_TCP_MID = 1 << 4,	/* made anew from a packet in mid-stream */
	FLOW_REOPENED = 1 << 5, /* half open in `flows`, where its closed predecessor was */
};

/* flows, halfopen: a packet's tuple -> what to make of it. Two rows a flow: the
 * request's, and the reply's, which is the claim of the reply tuple.
 */
struct flow {
	struct addr src; /* the packet as it leaves */
	struct addr dst;
	__u16 sport;
	__u16 dport;
	enum flow_action action;
	enum flow_flag flags;
	__u64 src_generation; /* of the pod that sends, 0 if none does */
	__u64 dst_generation; /* of the pod that receives */
	__u64 seen_ns;	      /* written at most once a second */
	enum flow_state state;
	__u32 tcp_seq; /* reply's last sequence number while half open */
};

/* fragments: later fragments of a datagram -> the tuple of its first one */
struct fragment_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto;
	enum side side;
	__u16 pad;
};

struct fragment {
	struct tuple tuple; /* all zero: a later fragment came, and no first one */
	__u64 seen_ns;
};

/* hops: what the FIB said of the way to dst a moment ago; a slot is a hash of its key */
struct hop {
	struct addr src; /* the key: the packet as it leaves */
	struct addr dst;
	__u32 proto;
	__u32 asked;	 /* when it was asked, in 2^27 ns */
	struct addr via; /* the neighbour; IPv4 in the first 4 bytes */
	__u32 family;	 /* of via: AF_ */
	__u32 ifindex;
	__u32 mtu;
	__u32 pad;
};

#define CIDR_NETWORKS 8

/* nonmasq, excluded: range of addresses (LPM) -> the networks whose configuration names
 * it. The family comes first, so that no range of IPv6 holds IPv4's; the prefix counts
 * its bits too.
 */
struct cidr_key {
	__u32 prefix;  /* 32 + the range's own, IPv4's as of its 16 bytes: 96 more */
	__u32 version; /* 4, 6 */
	__u8 addr[16];
};

struct cidr {
	char networks[CIDR_NETWORKS][64]; /* unused: all zero */
};

enum remote_kind : __u32 {
	REMOTE_DIRECT = 1, /* the next hop is on a subnet of ours */
	REMOTE_TUNNEL = 2,
	REMOTE_NODE = 3, /* an address of a node itself: it is only not masqueraded */
};

/* remotes: range of addresses (LPM) -> the other node that has it; the agent writes it */
struct remote {
	struct addr endpoint; /* of the node; a tunnel's other end */
	struct addr local;    /* a tunnel's end here; zero: the kernel's choice */
	enum remote_kind kind;
	__u32 vni;
	__u32 ifindex; /* of the device to there, if it carries our programs; 0: only the stack goes */
	__u32 pad;
};

enum hook : __u16 {
	HOOK_FROM_POD = 1,
	HOOK_TO_POD = 2,
	HOOK_FROM_UPLINK = 3,
	HOOK_TO_UPLINK = 4,
	HOOK_FROM_HOST = 5,
	HOOK_FROM_TUNNEL = 6,
	HOOK_TO_TUNNEL = 7,
	HOOK_MAX,
};

enum drop_reason : __u16 {
	DROP_SOURCE = 1,	  /* source address is not the pod's */
	DROP_LOOPBACK = 2,	  /* 127/8 or ::1 from a pod or the wire */
	DROP_EGRESS_LIMIT = 3,	  /* over the pod's egress rate, its shaper gone */
	DROP_PORTS_EXHAUSTED = 4, /* every port tried for the reply tuple is taken */
	DROP_TOO_BIG = 5,	  /* the host's datagram to a hostPort exceeds the pod's MTU */
	DROP_NO_ROOM = 6,	  /* a row could not be written */
	DROP_FRAGMENT_ORDER = 7,  /* a later fragment of a translated datagram came before its first */
	DROP_NO_ADDRESS = 8,	  /* masquerade: the uplink has no address of the family */
	DROP_TUNNEL_SOURCE = 9,	  /* from the tunnel: not of the node whose the source is */
	DROP_NO_REMOTE = 10,	  /* to the tunnel: no other node has the destination */
	DROP_REASON_MAX,
};

/* counters: drops by pod, hook and reason */
struct counter_key {
	__u32 ifindex; /* pod's host side, or the device the packet was on */
	enum hook hook;
	enum drop_reason reason;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* A new reason has a name in maps/counter.go, a row in docs/maps.md and a test. */

enum feature : __u32 {
	FEATURE_CONNTRACK = 1 << 0, /* programs were verified with the conntrack kfuncs */
	FEATURE_TCX = 1 << 1,
	FEATURE_SHARED_PORTS = 1 << 2, /* few numbers are free of the host's: `ports` holds its too */
	FEATURE_FQ_CODEL = 1 << 3,     /* shapers have a queue a flow */
	FEATURE_TBF = 1 << 4,	       /* limits can be held */
};

struct port_range {
	__u16 first;
	__u16 last; /* inclusive */
};

/* An uplink's address, for kernels whose FIB lookup does not tell it (before 6.7), and the tunnel
 * device's, one row for each of its ranges: the first one's is given, the others' are left.
 */
struct uplink {
	struct addr addr4; /* zero: none */
	struct addr addr6;
	__u32 ifindex;
	__u32 pad;
};

#define PORT_RANGES 16
#define UPLINKS 8

/* config: the one row (key 0) of what a later ADD may change */
struct node_config {
	__u64 build; /* hash of the object that is loaded */
	__u32 schema;
	enum feature features;
	struct port_range ports[PORT_RANGES]; /* source ports of masqueraded flows; unused: 0-0 */
	__u32 port_count;		      /* numbers in `ports` */
	__u32 pad;
	struct uplink uplinks[UPLINKS]; /* the tunnel device's come first; unused: ifindex 0 */
	__u64 netns_cookie;		/* of the node's namespace, while from_socket is attached */
};

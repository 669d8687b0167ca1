/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Flows that netfilter lets pass: where it has rules, only these are forwarded here.
 *
 * User space learns from conntrack which flows are established and how they are translated. That is not enough: conntrack has seen packets
 * before a rule drops them. So a flow is forwarded only while the kernel is seen to forward it: now and then it gets a packet of each
 * direction, and the program at the interface that packets leave by confirms that this one came through, translated as expected. Whatever
 * stops the flow in the kernel, its confirmation runs out then. */
#pragma once

#include "forward.h"

/* All by the coarse monotonic clock, in nanoseconds. */
/* How often the kernel gets a packet of a flow. */
#define SAMPLE_PERIOD 200000000ULL
/* How long a packet that came through speaks for those behind it. */
#define CONFIRMED_FOR 700000000ULL
/* How often user space is asked about the same flow at most. */
#define ASK_PERIOD 1000000000ULL

/* How many packets of a flow make it worth asking, if no other comes between. */
#define WORTH_ASKING 8
/* And how many bytes of one that is forwarded make it worth looking at again. */
#define LOOK_AGAIN_BYTES (1ULL << 28)

struct ipv4_tuple {
	be32 source;
	be32 destination;
	be16 sport;
	be16 dport;
	u32 protocol;
};

struct ipv6_tuple {
	be32 source[4];
	be32 destination[4];
	be16 sport;
	be16 dport;
	u32 protocol;
};

/* One direction of a flow, under its packets' addresses and ports as they come in. */
struct flow {
	/* The same as they leave; IPv4 in the first word. */
	be32 source[4];
	be32 destination[4];
	be16 sport;
	be16 dport;
	/* What checksums differ by for the addresses, and for the ports. */
	u32 address_difference;
	u32 port_difference;
	/* A packet ended it, so it is the kernel's. */
	u32 is_closing;
	/* Where the kernel forwarded it last: by which interfaces, and to which station. */
	u32 ingress;
	u32 egress;
	u8 mac[8];
	/* When the kernel got a packet last, and when the one came in that it was last seen to forward. */
	u64 sampled;
	u64 confirmed;
	/* Forwarded here. */
	u64 packets;
	u64 bytes;
	/* How many bytes it were when user space was asked to look again. */
	u64 looked_at;
};

/* What user space is asked about. IPv4 in the first word. */
struct question {
	be32 source[4];
	be32 destination[4];
	be16 sport;
	be16 dport;
	u8 protocol;
	u8 family;
	u16 padding;
};

/* Flows are the same for all interfaces: each one's programs have the same map in here. */
#define FLOWS(name, tuple)                                         \
	struct {                                                   \
		MAP_UINT(type, MAP_ARRAY_OF_MAPS);                 \
		MAP_TYPE(key, u32);                                \
		MAP_TYPE(value, u32);                              \
		MAP_UINT(max_entries, 1);                          \
		struct {                                           \
			MAP_UINT(type, MAP_HASH);                  \
			MAP_UINT(key_size, sizeof(tuple));         \
			MAP_UINT(value_size, sizeof(struct flow)); \
			MAP_UINT(max_entries, 1);                  \
			MAP_UINT(map_flags, NO_PREALLOCATION);     \
		} *values[];                                       \
	} name SEC(".maps")

FLOWS(flows_ipv4, struct ipv4_tuple);
FLOWS(flows_ipv6, struct ipv6_tuple);

struct {
	MAP_UINT(type, MAP_QUEUE);
	MAP_TYPE(value, struct question);
	MAP_UINT(max_entries, 1024);
} questions SEC(".maps");

/* Which flow had packets here last, and how many in a row. */
struct interest {
	u32 fingerprint;
	u32 packets;
	u64 asked;
};

#define INTEREST_SLOTS 4096

ARRAY(MAP_ARRAY, struct interest, INTEREST_SLOTS) interests SEC(".maps");

static ALWAYS_INLINE int is_established_only(const struct ingress *ingress, const struct bpf_fib_lookup *lookup)
{
	return ingress->flags & (lookup->family == FAMILY_IPV4 ? ESTABLISHED_ONLY_IPV4 : ESTABLISHED_ONLY_IPV6);
}

static ALWAYS_INLINE struct flow *flow_ipv4(const struct ipv4_tuple *tuple)
{
	u32 zero = 0;
	void *flows = bpf_map_lookup_elem(&flows_ipv4, &zero);

	return flows ? bpf_map_lookup_elem(flows, tuple) : 0;
}

static ALWAYS_INLINE struct flow *flow_ipv6(const struct ipv6_tuple *tuple)
{
	u32 zero = 0;
	void *flows = bpf_map_lookup_elem(&flows_ipv6, &zero);

	return flows ? bpf_map_lookup_elem(flows, tuple) : 0;
}

/* The flow of a packet that comes in with these addresses and ports. */
static ALWAYS_INLINE struct flow *flow_of(const struct bpf_fib_lookup *lookup)
{
	if (lookup->family == FAMILY_IPV4) {
		struct ipv4_tuple tuple = {
			.source = lookup->source[0],
			.destination = lookup->destination[0],
			.sport = lookup->sport,
			.dport = lookup->dport,
			.protocol = lookup->l4_protocol,
		};

		return flow_ipv4(&tuple);
	} else {
		struct ipv6_tuple tuple = { .sport = lookup->sport, .dport = lookup->dport, .protocol = lookup->l4_protocol };

		__builtin_memcpy(tuple.source, lookup->source, sizeof(tuple.source));
		__builtin_memcpy(tuple.destination, lookup->destination, sizeof(tuple.destination));
		return flow_ipv6(&tuple);
	}
}

/* The flow whose packets come in with what answers to this one's have: the other direction. */
static ALWAYS_INLINE struct flow *other_direction(const struct flow *flow, u32 family, u32 protocol)
{
	if (family == FAMILY_IPV4) {
		struct ipv4_tuple tuple = {
			.source = flow->destination[0],
			.destination = flow->source[0],
			.sport = flow->dport,
			.dport = flow->sport,
			.protocol = protocol,
		};

		return flow_ipv4(&tuple);
	} else {
		struct ipv6_tuple tuple = { .sport = flow->dport, .dport = flow->sport, .protocol = protocol };

		__builtin_memcpy(tuple.source, flow->destination, sizeof(tuple.source));
		__builtin_memcpy(tuple.destination, flow->source, sizeof(tuple.destination));
		return flow_ipv6(&tuple);
	}
}

static ALWAYS_INLINE void ask(const struct bpf_fib_lookup *lookup)
{
	struct question question = {
		.sport = lookup->sport,
		.dport = lookup->dport,
		.protocol = lookup->l4_protocol,
		.family = lookup->family,
	};

	__builtin_memcpy(question.source, lookup->source, sizeof(question.source));
	__builtin_memcpy(question.destination, lookup->destination, sizeof(question.destination));
	/* If there is no space, it is asked again. */
	bpf_map_push_elem(&questions, &question, 0);
}

/* Asks user space about a flow that is not known, if it has some packets. */
static ALWAYS_INLINE void show_interest(const struct bpf_fib_lookup *lookup, u64 now)
{
	u32 fingerprint = lookup->source[0] ^ lookup->source[1] ^ lookup->source[2] ^ lookup->source[3], slot;
	struct interest *interest;

	fingerprint = fingerprint * 0x9e3779b1 ^ lookup->destination[0] ^ lookup->destination[1] ^ lookup->destination[2] ^
		      lookup->destination[3];
	fingerprint = fingerprint * 0x85ebca6b ^ lookup->sport ^ (u32)lookup->dport << 16;
	fingerprint = fingerprint * 0xc2b2ae35 ^ lookup->l4_protocol;
	slot = (fingerprint * 0x9e3779b1) >> 20;
	interest = bpf_map_lookup_elem(&interests, &slot);
	if (!interest)
		return;
	if (interest->fingerprint != fingerprint) {
		interest->fingerprint = fingerprint;
		interest->packets = 1;
		interest->asked = 0;
		return;
	}
	if (++interest->packets < WORTH_ASKING || now - interest->asked < ASK_PERIOD)
		return;
	interest->packets = 0;
	interest->asked = now;
	ask(lookup);
}

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4

/* Finds the flow of a packet where netfilter has rules, and says whether it may be forwarded here. Its new destination, which the route is
 * to be looked up for, is put into `lookup`. `tcp_flags` are 0 for other protocols. */
static ALWAYS_INLINE int find_flow(const struct settings *set, const struct ingress *ingress, struct bpf_fib_lookup *lookup,
				   u32 tcp_flags, struct flow **found)
{
	struct flow *flow;
	u64 now;

	if (lookup->l4_protocol != PROTOCOL_TCP && lookup->l4_protocol != PROTOCOL_UDP)
		return PASS_NOT_ESTABLISHED;
	flow = flow_of(lookup);
	if (tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST)) {
		if (flow && !flow->is_closing) {
			struct flow *other = other_direction(flow, lookup->family, lookup->l4_protocol);

			flow->is_closing = 1;
			if (other)
				other->is_closing = 1;
		}
		return tcp_flags & TCP_SYN ? PASS_NOT_ESTABLISHED : PASS_CLOSING;
	}
	now = bpf_ktime_get_coarse_ns();
	if (!flow || flow->is_closing) {
		show_interest(lookup, now);
		return PASS_NOT_ESTABLISHED;
	}
	if (now - flow->sampled >= SAMPLE_PERIOD) {
		flow->sampled = now;
		if (flow->bytes - flow->looked_at >= LOOK_AGAIN_BYTES) {
			flow->looked_at = flow->bytes;
			ask(lookup);
		}
		return PASS_SAMPLE;
	}
	if (flow->confirmed <= set->rules_since || now - flow->confirmed >= CONFIRMED_FOR || flow->ingress != ingress->ifindex)
		return PASS_UNCONFIRMED;
	__builtin_memcpy(lookup->destination, flow->destination, sizeof(lookup->destination));
	lookup->dport = flow->dport;
	*found = flow;
	return FORWARD;
}

/* Whether the kernel would send a packet of a flow elsewhere than when it forwarded one last. */
static ALWAYS_INLINE int has_moved(const struct flow *flow, const struct bpf_fib_lookup *lookup)
{
	return flow->egress != lookup->ifindex || *(const u32 *)flow->mac != *(const u32 *)lookup->destination_mac ||
	       *(const u16 *)(flow->mac + 4) != *(const u16 *)(lookup->destination_mac + 4);
}

/* A checksum where what it covers differs by this (RFC 1624). */
static ALWAYS_INLINE u16 adjusted(u16 checksum, u32 difference)
{
	return (u16)~fold((u16)~checksum + difference);
}

/* Gives a frame's TCP or UDP header a flow's ports. Fails if the header isn't all there. */
static ALWAYS_INLINE int translate_transport(const struct flow *flow, u32 protocol, void *transport, const void *end)
{
	u32 difference = flow->address_difference + flow->port_difference;

	if (protocol == PROTOCOL_TCP) {
		struct tcp *tcp = transport;

		if ((void *)(tcp + 1) > end)
			return -1;
		tcp->sport = flow->sport;
		tcp->dport = flow->dport;
		tcp->checksum = adjusted(tcp->checksum, difference);
		KEEP_APART(difference);
	} else {
		struct udp *udp = transport;

		if ((void *)(udp + 1) > end)
			return -1;
		udp->sport = flow->sport;
		udp->dport = flow->dport;
		/* 0 is no checksum. */
		if (udp->checksum) {
			u16 sum = adjusted(udp->checksum, difference);

			udp->checksum = sum ? sum : 0xffff;
		}
	}
	return 0;
}

static ALWAYS_INLINE void count_flow(struct flow *flow, u64 bytes)
{
	__sync_fetch_and_add(&flow->packets, 1);
	__sync_fetch_and_add(&flow->bytes, bytes);
}

/* When a packet that the kernel gets came in, in a field that nobody else uses on its way: 15 bits of the clock, in 2^24 ns. */
#define TAG_SHIFT 24
#define TAG_MASK 0x7fffU
#define TAGGED 0x8000U

static ALWAYS_INLINE u32 tag_of(u64 now)
{
	return TAGGED | ((u32)(now >> TAG_SHIFT) & TAG_MASK);
}

/* When a packet with this tag came in, or a little before. */
static ALWAYS_INLINE u64 time_of(u32 tag, u64 now)
{
	u64 units = now >> TAG_SHIFT;

	return (units - (((u32)units - tag) & TAG_MASK)) << TAG_SHIFT;
}

/* Notes that the kernel forwards a flow: `leaving` is a packet's as it leaves, `ethernet` its header. */
static ALWAYS_INLINE void confirm(const struct bpf_fib_lookup *leaving, const struct ethernet *ethernet, u32 ingress, u32 egress, u64 came_in)
{
	struct bpf_fib_lookup answer = {};
	struct flow *other, *flow;

	answer.family = leaving->family;
	answer.l4_protocol = leaving->l4_protocol;
	answer.sport = leaving->dport;
	answer.dport = leaving->sport;
	__builtin_memcpy(answer.source, leaving->destination, sizeof(answer.source));
	__builtin_memcpy(answer.destination, leaving->source, sizeof(answer.destination));
	other = flow_of(&answer);
	if (!other)
		return;
	flow = other_direction(other, leaving->family, leaving->l4_protocol);
	if (!flow || flow->is_closing)
		return;
	if (flow->ingress != ingress || flow->egress != egress || *(u32 *)flow->mac != *(const u32 *)ethernet->to ||
	    *(u16 *)(flow->mac + 4) != *(const u16 *)(ethernet->to + 4)) {
		flow->confirmed = 0;
		flow->ingress = ingress;
		flow->egress = egress;
		__builtin_memcpy(flow->mac, ethernet->to, 6);
	}
	flow->confirmed = came_in;
}

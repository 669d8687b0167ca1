/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What both programs share: what user space tells them, what they count, and how they decide.
 *
 * A packet is forwarded only if the kernel would do so without doing anything else to it; all others are passed to the kernel as if
 * nothing had been there. The route is the kernel's own, by its own table. */
#pragma once

#include "kernel.h"

/* What becomes of a packet, and why. Each is counted. functions/router/src/paths/reason.rs has the same list. */
enum action_reason {
	FORWARD = 0,
	FORWARD_ESTABLISHED,
	/* To the kernel. */
	PASS_OTHER_HOST,
	PASS_NOT_IP,
	PASS_MALFORMED,
	PASS_OPTIONS,
	PASS_EXPIRING,
	PASS_TOO_LONG,
	PASS_NOT_FORWARDED,
	PASS_NO_NEIGHBOUR,
	PASS_SOURCE,
	PASS_FORWARDING_OFF,
	PASS_UNREACHABLE,
	PASS_TUNNEL_ROUTE,
	PASS_OTHER_INTERFACE,
	PASS_SAME_INTERFACE,
	PASS_ICMP_ERROR,
	PASS_NEIGHBOUR_CHECK,
	PASS_CHECKSUM_LEFT,
	PASS_REVERSE_PATH,
	PASS_MARKED,
	PASS_VLAN,
	PASS_SEGMENTS,
	PASS_NO_MEMORY,
	PASS_NOT_LED,
	PASS_NOT_ESTABLISHED,
	PASS_UNCONFIRMED,
	PASS_SAMPLE,
	PASS_CLOSING,
	/* Nowhere. */
	DROP_BLACKHOLE,
	DROP_UNFINISHED,
	REASONS = 64,
};

/* What is known of the interface that a packet comes in by, or of a VLAN on it. */
struct ingress {
	/* Its number, which rules and VRFs look at. */
	u32 ifindex;
	/* What holds there. */
	u32 flags;
};

enum ingress_flags {
	FORWARDS_IPV4 = 1,
	FORWARDS_IPV6 = 2,
	/* rp_filter: packets' sources must have a route; to the interface that they come in by. */
	SOURCE_HAS_ROUTE = 4,
	SOURCE_IS_THERE = 8,
	/* The kernel sends ICMP redirects for IPv4 packets that go back out where they came in; for IPv6 it always does. */
	SENDS_REDIRECTS = 16,
	/* Netfilter has rules, so only flows that it is seen to let pass are forwarded. */
	ESTABLISHED_ONLY_IPV4 = 32,
	ESTABLISHED_ONLY_IPV6 = 64,
};

struct settings {
	/* Of frames without a tag. */
	struct ingress untagged;
	/* The Ethernet address of frames that are for this interface; the last two bytes are zero. */
	u8 mac[8];
	/* Until when user space leads this program, by the coarse monotonic clock; 0: as long as it is attached. */
	u64 led_until;
	/* When netfilter's rules changed last, by the same clock. */
	u64 rules_since;
	/* Senders on this link may leave checksums to hardware that there isn't. */
	u32 checksums_left;
	/* The least MTU that a route of IPv4, or of IPv6, has of its own; 0: none has. */
	u32 least_route_mtu_ipv4;
	u32 least_route_mtu_ipv6;
	/* Established flows are forwarded where netfilter has rules. */
	u32 offloads_established;
	/* No rule and no route looks at more of a packet than where it comes in, its destination and its type of service, and none has
	 * several paths. */
	u32 ipv4_goes_by_destination;
	u32 ipv6_goes_by_destination;
	/* Two bits for each of the box's own IPv4 addresses, which others may share. */
	u64 own_address_bits;
};

/* Where packets may leave. */
struct egress {
	/* The interface to send by: that of the route, or the one that its VLAN is on. */
	u32 device;
	/* The tag to put on; 0: none. */
	u16 vlan;
	u16 flags;
};

enum egress_flags {
	/* Frames can be redirected to that interface. */
	TAKES_FRAMES = 1,
	/* The route's interface carries Ethernet frames. */
	IS_ETHERNET = 2,
};

struct counters {
	u64 received;
	u64 bytes;
	/* The tick of the kernel's clock in which a decision was noted last. */
	u64 noted;
};

ARRAY(MAP_ARRAY, struct settings, 1) settings SEC(".maps");

ARRAY(MAP_PERCPU_ARRAY, struct counters, 1) counters SEC(".maps");

/* Packets by reason. A map of its own: without CAP_PERFMON the verifier allows no index into a value that several paths lead to. */
ARRAY(MAP_PERCPU_ARRAY, u64, REASONS) reasons SEC(".maps");

/* VLANs on this interface, by their number. */
HASH(u32, struct ingress, 4096) vlans SEC(".maps");

/* Where packets may leave, by the number of the interface that the route says. */
HASH(u32, struct egress, 65536) egresses SEC(".maps");

/* The box's own IPv4 addresses: no packet to be forwarded may have one as its source, and what is for them is the kernel's. */
HASH(be32, u32, 65536) own_addresses SEC(".maps");

/* The shortest payload of an Ethernet frame: shorter packets are padded. */
#define LEAST_PAYLOAD 46

/* MTUs that routes have of their own, by prefix: the least of those of a prefix and of all around it. The lookup goes by them only if
 * they are locked. */
struct ipv4_prefix {
	u32 length;
	be32 address;
};

struct ipv6_prefix {
	u32 length;
	be32 address[4];
};

struct {
	MAP_UINT(type, MAP_LPM_TRIE);
	MAP_TYPE(key, struct ipv4_prefix);
	MAP_TYPE(value, u32);
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, NO_PREALLOCATION);
} mtus_ipv4 SEC(".maps");

struct {
	MAP_UINT(type, MAP_LPM_TRIE);
	MAP_TYPE(key, struct ipv6_prefix);
	MAP_TYPE(value, u32);
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, NO_PREALLOCATION);
} mtus_ipv6 SEC(".maps");

/* Whether a packet, or a segment, of this length may be longer than its route's own MTU. */
static ALWAYS_INLINE int may_exceed_route_mtu(const struct settings *set, const struct bpf_fib_lookup *lookup, u32 length)
{
	u32 *mtu;

	if (lookup->family == FAMILY_IPV4) {
		struct ipv4_prefix prefix = { .length = 32, .address = lookup->destination[0] };

		if (!set->least_route_mtu_ipv4 || length <= set->least_route_mtu_ipv4)
			return 0;
		mtu = bpf_map_lookup_elem(&mtus_ipv4, &prefix);
	} else {
		struct ipv6_prefix prefix = { .length = 128 };

		if (!set->least_route_mtu_ipv6 || length <= set->least_route_mtu_ipv6)
			return 0;
		__builtin_memcpy(prefix.address, lookup->destination, sizeof(prefix.address));
		mtu = bpf_map_lookup_elem(&mtus_ipv6, &prefix);
	}
	return mtu && length > *mtu;
}

/* Whether user space still leads a program. One that is a filter stays when user space is killed, and nobody tells it of changes then.
 * Where the kernel takes programs away by itself, this is a look at a zero. */
static ALWAYS_INLINE int is_led(const struct settings *set)
{
	return !set->led_until || bpf_ktime_get_coarse_ns() <= set->led_until;
}

static ALWAYS_INLINE void count_reason(u32 reason)
{
	u64 *count = bpf_map_lookup_elem(&reasons, &reason);

	if (count)
		(*count)++;
}

static ALWAYS_INLINE u32 fold(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static ALWAYS_INLINE u32 sum32(be32 word)
{
	return (word & 0xffff) + (word >> 16);
}

static ALWAYS_INLINE u32 ipv4_header_sum(const struct ipv4 *ip)
{
	const be32 *words = (const be32 *)ip;

	return fold(sum32(words[0]) + sum32(words[1]) + sum32(words[2]) + sum32(words[3]) + sum32(words[4]));
}

/* What becomes of a packet by the kernel's lookup. */
static ALWAYS_INLINE int reason_of_lookup(long result)
{
	switch (result) {
	case FIB_SUCCESS:
		return FORWARD;
	case FIB_BLACKHOLE:
		return DROP_BLACKHOLE;
	case FIB_UNREACHABLE:
	case FIB_PROHIBIT:
		return PASS_UNREACHABLE;
	case FIB_FORWARDING_DISABLED:
		return PASS_FORWARDING_OFF;
	case FIB_UNSUPPORTED_TUNNEL:
		return PASS_TUNNEL_ROUTE;
	case FIB_NO_NEIGHBOUR:
		return PASS_NO_NEIGHBOUR;
	case FIB_FRAGMENTATION_NEEDED:
		return PASS_TOO_LONG;
	default:
		return PASS_NOT_FORWARDED;
	}
}

/* Whether the kernel's check of sources would let a packet through, as far as one lookup can tell. Where it can't, the kernel does. */
static ALWAYS_INLINE int check_reverse_path(void *context, const struct ingress *ingress, const struct bpf_fib_lookup *forward)
{
	struct bpf_fib_lookup reverse = {};
	long result;

	reverse.family = FAMILY_IPV4;
	reverse.ifindex = ingress->ifindex;
	reverse.flow_info = forward->flow_info;
	reverse.source[0] = forward->destination[0];
	reverse.destination[0] = forward->source[0];
	result = bpf_fib_lookup(context, &reverse, sizeof(reverse), 0);
	if (result != FIB_SUCCESS && result != FIB_NO_NEIGHBOUR)
		return PASS_REVERSE_PATH;
	if ((ingress->flags & SOURCE_IS_THERE) && reverse.ifindex != ingress->ifindex)
		return PASS_REVERSE_PATH;
	return FORWARD;
}

/* Whether an IPv4 address is the box's own. Of most others bits tell that they aren't (B. H. Bloom, CACM 13 (7), 1970). */
static ALWAYS_INLINE int is_own_address(const struct settings *set, const be32 *address)
{
	u32 hash = *address * 0x9e3779b1;
	u64 bits = 1ULL << (hash >> 26) | 1ULL << (hash >> 20 & 63);

	return (set->own_address_bits & bits) == bits && bpf_map_lookup_elem(&own_addresses, address);
}

/* Checks a header as the kernel does (net/ipv4/ip_input.c: ip_rcv_core, net/ipv4/route.c: ip_route_input_slow), and says in `lookup`
 * what to look up. `bytes` is what there is of the packet and its padding. */
static ALWAYS_INLINE int examine_ipv4(const struct settings *set, const struct ingress *ingress, const struct ipv4 *ip, u64 bytes,
				      struct bpf_fib_lookup *lookup)
{
	u32 length = BE16(ip->length);
	u8 first;

	if (!(ingress->flags & FORWARDS_IPV4))
		return PASS_FORWARDING_OFF;
	if (ip->version_length != 0x45)
		return (ip->version_length & 0xf0) == 0x40 && (ip->version_length & 0xf) > 5 ? PASS_OPTIONS : PASS_MALFORMED;
	/* Bytes behind the packet are padding, up to the shortest frame. */
	if (length < sizeof(*ip) || length > bytes || (length < bytes && bytes > LEAST_PAYLOAD))
		return PASS_MALFORMED;
	if (ipv4_header_sum(ip) != 0xffff)
		return PASS_MALFORMED;
	if (ip->ttl <= 1)
		return PASS_EXPIRING;
	first = (u8)ip->source;
	if (first == 0 || first == 127 || first >= 224)
		return PASS_SOURCE;
	if (is_own_address(set, &ip->source))
		return PASS_SOURCE;
	/* The lookup would say the same, later. Of an established flow the address may stand for another. */
	if (!(ingress->flags & ESTABLISHED_ONLY_IPV4) && is_own_address(set, &ip->destination))
		return PASS_NOT_FORWARDED;
	lookup->family = FAMILY_IPV4;
	lookup->l4_protocol = ip->protocol;
	lookup->flow_info = ip->tos;
	lookup->source[0] = ip->source;
	lookup->destination[0] = ip->destination;
	lookup->length_or_mtu = length;
	return FORWARD;
}

/* The same (net/ipv6/ip6_input.c: ip6_rcv_core, net/ipv6/ip6_output.c: ip6_forward). */
static ALWAYS_INLINE int examine_ipv6(const struct ingress *ingress, const struct ipv6 *ip, u64 bytes, struct bpf_fib_lookup *lookup)
{
	u32 length = sizeof(*ip) + BE16(ip->payload_length);
	const be32 *from = ip->source;

	if (!(ingress->flags & FORWARDS_IPV6))
		return PASS_FORWARDING_OFF;
	if ((*(const u8 *)ip & 0xf0) != 0x60)
		return PASS_MALFORMED;
	if (ip->next_header == PROTOCOL_HOP_BY_HOP)
		return PASS_OPTIONS;
	if (ip->payload_length == 0 || length > bytes || (length < bytes && bytes > LEAST_PAYLOAD) || length > 0xffff)
		return PASS_MALFORMED;
	if (ip->hop_limit <= 1)
		return PASS_EXPIRING;
	/* Groups; link-local ones; none, the loopback's and those of IPv4. */
	if ((from[0] & BE32(0xff000000)) == BE32(0xff000000) || (from[0] & BE32(0xffc00000)) == BE32(0xfe800000))
		return PASS_SOURCE;
	if (from[0] == 0 && from[1] == 0)
		return PASS_SOURCE;
	lookup->family = FAMILY_IPV6;
	lookup->l4_protocol = ip->next_header;
	lookup->flow_info = ip->version_class_flow & BE32(0x0fffffff);
	__builtin_memcpy(lookup->source, ip->source, sizeof(lookup->source));
	__builtin_memcpy(lookup->destination, ip->destination, sizeof(lookup->destination));
	lookup->length_or_mtu = length;
	return FORWARD;
}

/* Takes in the ports, by which rules and paths of several are chosen. Errors go by the packet that they tell of, so they are the
 * kernel's. `transport` is the packet's, and at least four bytes. */
static ALWAYS_INLINE int examine_transport(const u8 *transport, struct bpf_fib_lookup *lookup)
{
	switch (lookup->l4_protocol) {
	case PROTOCOL_TCP:
	case PROTOCOL_UDP:
	case PROTOCOL_SCTP:
	case PROTOCOL_UDPLITE:
		lookup->sport = *(const be16 *)transport;
		lookup->dport = *(const be16 *)(transport + 2);
		return FORWARD;
	case PROTOCOL_ICMP:
		/* Unreachable, quench, redirect, time exceeded, parameter problem. */
		if (lookup->family == FAMILY_IPV4 &&
		    (transport[0] == 3 || transport[0] == 4 || transport[0] == 5 || transport[0] == 11 || transport[0] == 12))
			return PASS_ICMP_ERROR;
		return FORWARD;
	case PROTOCOL_ICMPV6:
		if (lookup->family == FAMILY_IPV6 && transport[0] < 128)
			return PASS_ICMP_ERROR;
		return FORWARD;
	}
	return FORWARD;
}

/* Whether the kernel may tell the sender of a shorter way. */
static ALWAYS_INLINE int is_to_be_redirected(const struct ingress *ingress, const struct bpf_fib_lookup *lookup)
{
	return lookup->ifindex == ingress->ifindex && (lookup->family == FAMILY_IPV6 || (ingress->flags & SENDS_REDIRECTS));
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where packets go: by the kernel's own lookup, whose answer holds for other packets to the same destination until the kernel's clock
 * ticks, if it depends on nothing else. The kernel does the same with packets that come in together (net/ipv4/ip_input.c:
 * ip_list_rcv_finish). */
#pragma once

#include "decisions.h"

/* What a lookup answered. */
struct route {
	/* In which tick of the kernel's clock. */
	u64 tick;
	be32 destination[4];
	be32 next_hop[4];
	u32 ingress;
	u32 ifindex;
	u16 mtu;
	u8 family;
	u8 next_hop_family;
	u8 source_mac[6];
	u8 destination_mac[6];
	u8 tos;
	u8 padding[3];
	struct egress egress;
	u32 more_padding;
};

#define ROUTE_SLOT_BITS 9

/* The latest of each CPU. */
ARRAY(MAP_PERCPU_ARRAY, struct route, 1 << ROUTE_SLOT_BITS) routes SEC(".maps");

/* Where a packet leaves. */
struct way {
	struct egress egress;
	u32 has_egress;
	/* Whether the kernel has been asked about the same in this tick, so that it knows that the neighbour is in use. */
	u32 is_known;
	u32 next_hop_family;
};

/* The place of what is known about a packet's destination; none if that doesn't tell where it goes. */
static ALWAYS_INLINE struct route *route_slot(const struct settings *set, const struct bpf_fib_lookup *lookup)
{
	u32 slot;

	if (!(lookup->family == FAMILY_IPV4 ? set->ipv4_goes_by_destination : set->ipv6_goes_by_destination))
		return 0;
	slot = lookup->destination[0] * 0x9e3779b1 ^ lookup->destination[1] * 0x85ebca6b ^ lookup->destination[2] * 0xc2b2ae35 ^
	       lookup->destination[3] * 0x27d4eb2f;
	slot >>= 32 - ROUTE_SLOT_BITS;
	return bpf_map_lookup_elem(&routes, &slot);
}

static ALWAYS_INLINE u8 tos_of(const struct bpf_fib_lookup *lookup)
{
	return lookup->family == FAMILY_IPV4 ? (u8)lookup->flow_info : 0;
}

static ALWAYS_INLINE int is_answer(const struct route *route, const struct bpf_fib_lookup *lookup, u64 tick)
{
	return route->tick == tick && route->destination[0] == lookup->destination[0] && route->destination[1] == lookup->destination[1] &&
	       route->destination[2] == lookup->destination[2] && route->destination[3] == lookup->destination[3] &&
	       route->ingress == lookup->ifindex && route->family == lookup->family && route->tos == tos_of(lookup);
}

/* Finds out where a packet goes, as `lookup` describes it, and says there and in `way` where that is, with the neighbour. */
static ALWAYS_INLINE int find_way(void *context, const struct settings *set, struct counters *count, struct bpf_fib_lookup *lookup,
				  struct way *way)
{
	u64 tick = bpf_jiffies64();
	struct route *route = route_slot(set, lookup);
	struct decision *decision;
	struct egress *egress;
	struct bpf_fib_lookup asked;
	u8 family = lookup->family;
	long result;

	if (route && is_answer(route, lookup, tick)) {
		decision = begin_decision(count, lookup, tick, 1);
		result = lookup->length_or_mtu > route->mtu ? FIB_FRAGMENTATION_NEEDED : FIB_SUCCESS;
		if (decision) {
			__builtin_memcpy(lookup->destination, route->next_hop, sizeof(lookup->destination));
			lookup->family = route->next_hop_family;
		}
		lookup->ifindex = route->ifindex;
		lookup->length_or_mtu = route->mtu;
		__builtin_memcpy(lookup->source_mac, route->source_mac, 6);
		__builtin_memcpy(lookup->destination_mac, route->destination_mac, 6);
		way->egress = route->egress;
		way->has_egress = 1;
		way->is_known = 1;
		if (decision)
			end_decision(decision, lookup, result);
		lookup->family = family;
		return reason_of_lookup(result);
	}
	asked = *lookup;
	decision = begin_decision(count, lookup, tick, 0);
	result = bpf_fib_lookup(context, lookup, sizeof(*lookup), 0);
	if (decision)
		end_decision(decision, lookup, result);
	way->next_hop_family = lookup->family;
	lookup->family = family;
	if (result != FIB_SUCCESS && result != FIB_NO_NEIGHBOUR)
		return reason_of_lookup(result);
	egress = bpf_map_lookup_elem(&egresses, &lookup->ifindex);
	if (!egress)
		return reason_of_lookup(result);
	way->egress = *egress;
	way->has_egress = 1;
	if (route && result == FIB_SUCCESS && (egress->flags & IS_ETHERNET)) {
		route->tick = 0;
		__builtin_memcpy(route->destination, asked.destination, sizeof(route->destination));
		__builtin_memcpy(route->next_hop, lookup->destination, sizeof(route->next_hop));
		route->ingress = asked.ifindex;
		route->ifindex = lookup->ifindex;
		route->mtu = lookup->length_or_mtu;
		route->family = family;
		route->next_hop_family = way->next_hop_family;
		route->tos = tos_of(&asked);
		__builtin_memcpy(route->source_mac, lookup->source_mac, 6);
		__builtin_memcpy(route->destination_mac, lookup->destination_mac, 6);
		route->egress = *egress;
		route->tick = tick;
	}
	return reason_of_lookup(result);
}

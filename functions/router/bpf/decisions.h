/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Some of what the programs decide, for user space to compare with what the kernel says. */
#pragma once

#include "forward.h"

/* A packet that was looked up, and what was found. functions/router/src/paths/layout.rs has the same. */
struct decision {
	/* By the coarse monotonic clock, in nanoseconds; 0 while it is written. */
	u64 decided;
	be32 source[4];
	be32 destination[4];
	be32 next_hop[4];
	be32 flow_info;
	/* The interfaces that it came in by, and leaves by. */
	u32 ingress;
	u32 egress;
	/* What the lookup says. */
	u32 result;
	be16 sport;
	be16 dport;
	u16 length;
	u8 protocol;
	u8 family;
	/* IPv4 may have a next hop of IPv6. */
	u8 next_hop_family;
	u8 padding[7];
};

#define DECISIONS 64

/* The latest of each CPU, one for each tick of the kernel's clock. */
ARRAY(MAP_PERCPU_ARRAY, struct decision, DECISIONS) decisions SEC(".maps");

/* Where to note what is decided of a packet that is about to be looked up; nowhere, if another one was noted in this tick. One that goes
 * by an earlier answer is noted instead of one that was looked up. */
static ALWAYS_INLINE struct decision *begin_decision(struct counters *count, const struct bpf_fib_lookup *lookup, u64 tick, int is_known)
{
	u64 order = 2 * tick + is_known;
	u32 slot = tick % DECISIONS;
	struct decision *decision;

	if (count->noted >= order)
		return 0;
	count->noted = order;
	decision = bpf_map_lookup_elem(&decisions, &slot);
	if (!decision)
		return 0;
	decision->decided = 0;
	__builtin_memcpy(decision->source, lookup->source, sizeof(decision->source));
	__builtin_memcpy(decision->destination, lookup->destination, sizeof(decision->destination));
	decision->flow_info = lookup->flow_info;
	decision->ingress = lookup->ifindex;
	decision->sport = lookup->sport;
	decision->dport = lookup->dport;
	decision->length = lookup->length_or_mtu;
	decision->protocol = lookup->l4_protocol;
	decision->family = lookup->family;
	return decision;
}

static ALWAYS_INLINE void end_decision(struct decision *decision, const struct bpf_fib_lookup *lookup, u32 result)
{
	__builtin_memcpy(decision->next_hop, lookup->destination, sizeof(decision->next_hop));
	decision->next_hop_family = lookup->family;
	decision->egress = lookup->ifindex;
	decision->result = result;
	decision->decided = bpf_ktime_get_coarse_ns();
}

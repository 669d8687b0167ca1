/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Copies of packets for whoever captures on this interface: as they came, with what became of them. */
#pragma once

#include "forward.h"

/* So many bytes of a packet at most. */
#define COPY_BYTES 2016

/* What is wanted. functions/router/src/paths/layout.rs has the same. */
struct capture {
	/* One packet in so many; 0: nobody captures. */
	u32 one_in;
	/* Bytes of each, 1 to COPY_BYTES. */
	u32 snap_length;
};

struct copy {
	/* By the monotonic clock, in nanoseconds. */
	u64 time;
	/* Bytes that the packet had, with its Ethernet header, and how many of them are here. */
	u32 length;
	u32 captured;
	/* What became of it: an action_reason. */
	u32 reason;
	/* The VLAN tag that isn't among the bytes; the protocol is 0 where there is none. */
	be16 tag_protocol;
	u16 tag_control;
	u64 unused;
	u8 data[COPY_BYTES];
};

struct copy_counts {
	/* Packets since the last one of the sample. */
	u64 passed;
	/* Packets that found the queue full. */
	u64 missed;
};

ARRAY(MAP_ARRAY, struct capture, 1) capture SEC(".maps");

ARRAY(MAP_PERCPU_ARRAY, struct copy_counts, 1) copy_counts SEC(".maps");

/* Where a copy is made: the stack is too small. */
ARRAY(MAP_PERCPU_ARRAY, struct copy, 1) copy_space SEC(".maps");

/* The queue of who captures, which takes memory only meanwhile. */
struct {
	MAP_UINT(type, MAP_ARRAY_OF_MAPS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
	MAP_UINT(max_entries, 1);
	struct {
		MAP_UINT(type, MAP_QUEUE);
		MAP_UINT(key_size, 0);
		MAP_UINT(value_size, sizeof(struct copy));
		MAP_UINT(max_entries, 1);
	} *values[];
} copies SEC(".maps");

/* Where to copy a packet of this length, if it is wanted. Without a capture that is a look at a zero. */
static ALWAYS_INLINE struct copy *begin_copy(u64 length)
{
	u32 zero = 0;
	const struct capture *wanted = bpf_map_lookup_elem(&capture, &zero);
	struct copy_counts *counts;
	struct copy *copy;
	u64 bytes = length;

	if (!wanted || !wanted->one_in)
		return 0;
	counts = bpf_map_lookup_elem(&copy_counts, &zero);
	copy = bpf_map_lookup_elem(&copy_space, &zero);
	if (!counts || !copy || ++counts->passed < wanted->one_in)
		return 0;
	counts->passed = 0;
	if (bytes > wanted->snap_length)
		bytes = wanted->snap_length;
	copy->time = bpf_ktime_get_ns();
	copy->length = length;
	copy->captured = bytes;
	copy->tag_protocol = 0;
	copy->tag_control = 0;
	return copy;
}

/*
 * The place of the last byte to copy, for bounds that the verifier sees: of 64 bits, as else it is another register that is compared; and
 * not the number of bytes, of which Linux 6.1 doesn't see that it isn't 0. Without bytes it is beyond all.
 */
static ALWAYS_INLINE u64 last_of(const struct copy *copy)
{
	u64 last = (u64)copy->captured - 1;

	KEEP_APART(last);
	return last;
}

static ALWAYS_INLINE struct copy *copy_frame(struct xdp_md *xdp, u64 length)
{
	struct copy *copy = begin_copy(length);
	u64 last;

	if (!copy)
		return 0;
	last = last_of(copy);
	if (last >= COPY_BYTES || bpf_xdp_load_bytes(xdp, 0, copy->data, last + 1))
		return 0;
	return copy;
}

static ALWAYS_INLINE struct copy *copy_buffer(struct __sk_buff *skb)
{
	struct copy *copy = begin_copy(skb->len);
	u64 last;

	if (!copy)
		return 0;
	last = last_of(copy);
	if (last >= COPY_BYTES || bpf_skb_load_bytes(skb, 0, copy->data, last + 1))
		return 0;
	if (skb->vlan_present) {
		copy->tag_protocol = skb->vlan_proto;
		copy->tag_control = skb->vlan_tci;
	}
	return copy;
}

/* Gives a copy to who captures. */
static ALWAYS_INLINE void end_copy(struct copy *copy, u32 reason)
{
	u32 zero = 0;
	void *queue = bpf_map_lookup_elem(&copies, &zero);
	struct copy_counts *counts;

	copy->reason = reason;
	if (queue && !bpf_map_push_elem(queue, copy, 0))
		return;
	counts = bpf_map_lookup_elem(&copy_counts, &zero);
	if (counts)
		counts->missed++;
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the programs at the tc hook do with the kernel's socket buffers. */
#pragma once

#include "established.h"

/* What must lie together at the front of a socket buffer: the headers down to the ports. */
#define ETHERNET_BYTES sizeof(struct ethernet)
#define LEAST_IPV4 (ETHERNET_BYTES + sizeof(struct ipv4) + 4)
#define LEAST_IPV6 (ETHERNET_BYTES + sizeof(struct ipv6) + 4)

/* More than any MTU. */
#define ANY_LENGTH 0x10000

/*
 * Brings the first so many bytes of a socket buffer together, and lets `data` point there. Says whether there are so many. Pointers into
 * the buffer from before must not be used after that.
 */
static ALWAYS_INLINE int pull(struct __sk_buff *skb, u32 bytes, void **data)
{
	*data = (void *)(u64)skb->data;
	if (*data + bytes <= (void *)(u64)skb->data_end)
		return 1;
	if (bpf_skb_pull_data(skb, bytes))
		return 0;
	*data = (void *)(u64)skb->data;
	return *data + bytes <= (void *)(u64)skb->data_end;
}

/* The longest packet that leaves once a super-frame of TCP has been cut up; 0: that can't be told here. */
static ALWAYS_INLINE u32 longest_segment(struct __sk_buff *skb, const struct bpf_fib_lookup *lookup, u32 network_bytes)
{
	u8 offset;

	if (lookup->l4_protocol != PROTOCOL_TCP ||
	    bpf_skb_load_bytes(skb, ETHERNET_BYTES + network_bytes + 12, &offset, 1))
		return 0;
	return network_bytes + (offset >> 4) * 4 + skb->gso_size;
}

/* Whether the packet of a socket buffer may be forwarded as one of an established flow. */
static ALWAYS_INLINE int find_flow_of_buffer(struct __sk_buff *skb, const struct settings *set, const struct ingress *ingress,
					     struct bpf_fib_lookup *lookup, u32 network_bytes, struct flow **found)
{
	u8 tcp_flags = 0;

	if (lookup->l4_protocol == PROTOCOL_TCP &&
	    bpf_skb_load_bytes(skb, ETHERNET_BYTES + network_bytes + __builtin_offsetof(struct tcp, flags), &tcp_flags, 1))
		return PASS_NOT_ESTABLISHED;
	return find_flow(set, ingress, lookup, tcp_flags, found);
}

/* Gives a socket buffer's packet a flow's addresses and ports, and a new TTL. */
static ALWAYS_INLINE int translate_buffer(struct __sk_buff *skb, const struct flow *flow, u32 family, u32 protocol)
{
	u32 transport = ETHERNET_BYTES + (family == FAMILY_IPV4 ? sizeof(struct ipv4) : sizeof(struct ipv6));
	u32 checksum = transport +
		       (protocol == PROTOCOL_TCP ? __builtin_offsetof(struct tcp, checksum) : __builtin_offsetof(struct udp, checksum));
	u64 flags = protocol == PROTOCOL_UDP ? ZERO_IS_NONE : 0;
	be16 ports[2] = { flow->sport, flow->dport };

	if (flow->address_difference &&
	    bpf_l4_csum_replace(skb, checksum, 0, flow->address_difference, flags | PSEUDO_HEADER))
		return DROP_UNFINISHED;
	if (flow->port_difference && bpf_l4_csum_replace(skb, checksum, 0, flow->port_difference, flags))
		return DROP_UNFINISHED;
	if (bpf_skb_store_bytes(skb, transport, ports, sizeof(ports), 0))
		return DROP_UNFINISHED;
	if (family == FAMILY_IPV4) {
		/* From the TTL on. */
		struct {
			u8 ttl;
			u8 protocol;
			u16 checksum;
			be32 source;
			be32 destination;
		} changed;
		u32 sum;

		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES + 8, &changed, 4))
			return DROP_UNFINISHED;
		sum = (u32)changed.checksum + BE16(0x0100);
		sum += sum >= 0xffff;
		changed.checksum = adjusted(sum, flow->address_difference);
		changed.ttl--;
		changed.source = flow->source[0];
		changed.destination = flow->destination[0];
		/* What the kernel knows of the sum of all stays right, since the header's own doesn't change. */
		if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 8, &changed, sizeof(changed), 0))
			return DROP_UNFINISHED;
	} else {
		struct {
			be32 source[4];
			be32 destination[4];
		} changed;
		u8 hop_limit;

		__builtin_memcpy(changed.source, flow->source, sizeof(changed.source));
		__builtin_memcpy(changed.destination, flow->destination, sizeof(changed.destination));
		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES + 7, &hop_limit, 1))
			return DROP_UNFINISHED;
		hop_limit--;
		if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 7, &hop_limit, 1, RECOMPUTE_CHECKSUM) ||
		    bpf_skb_store_bytes(skb, ETHERNET_BYTES + 8, &changed, sizeof(changed), RECOMPUTE_CHECKSUM))
			return DROP_UNFINISHED;
	}
	return FORWARD;
}

/* What of a header changes from hop to hop. */
struct lifetime {
	u8 ttl;
	/* Of IPv4; what lies between and the checksum. */
	u8 protocol;
	u16 checksum;
};

/* Gives a socket buffer's packet a new TTL, which is one less than `lifetime` says. */
static ALWAYS_INLINE int count_down_buffer(struct __sk_buff *skb, struct lifetime lifetime)
{
	lifetime.ttl--;
	if (skb->protocol == ETHERTYPE_IPV4) {
		u32 sum = (u32)lifetime.checksum + BE16(0x0100);

		lifetime.checksum = sum + (sum >= 0xffff);
		/* What the kernel knows of the sum of all stays right, since the header's own doesn't change. */
		if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 8, &lifetime, sizeof(lifetime), 0))
			return PASS_NO_MEMORY;
	} else if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 7, &lifetime.ttl, 1, RECOMPUTE_CHECKSUM)) {
		return PASS_NO_MEMORY;
	}
	return FORWARD;
}

/* Confirms the flow of a packet that leaves, if the kernel forwards it. `tag` says when it came in. */
static ALWAYS_INLINE void examine_leaving(struct __sk_buff *skb, const struct settings *set, u32 tag)
{
	void *data;
	const struct ingress *egress = &set->untagged;
	struct bpf_fib_lookup leaving = {};
	struct ethernet *ethernet;

	/* With a mark the route may be another than the one that is found here. */
	if (skb->mark)
		return;
	if (skb->vlan_present) {
		u32 vlan = skb->vlan_tci & 0xfff;

		if (skb->vlan_proto != ETHERTYPE_VLAN)
			return;
		egress = bpf_map_lookup_elem(&vlans, &vlan);
		if (!egress)
			return;
	}
	if (skb->protocol == ETHERTYPE_IPV4) {
		struct ipv4 *ip;

		if (!pull(skb, LEAST_IPV4, &data))
			return;
		ip = data + ETHERNET_BYTES;
		if (ip->version_length != 0x45 || (ip->fragment & IPV4_IS_FRAGMENT))
			return;
		leaving.family = FAMILY_IPV4;
		leaving.l4_protocol = ip->protocol;
		leaving.source[0] = ip->source;
		leaving.destination[0] = ip->destination;
		leaving.sport = *(be16 *)(ip + 1);
		leaving.dport = *((be16 *)(ip + 1) + 1);
	} else if (skb->protocol == ETHERTYPE_IPV6) {
		struct ipv6 *ip;

		if (!pull(skb, LEAST_IPV6, &data))
			return;
		ip = data + ETHERNET_BYTES;
		leaving.family = FAMILY_IPV6;
		leaving.l4_protocol = ip->next_header;
		__builtin_memcpy(leaving.source, ip->source, sizeof(leaving.source));
		__builtin_memcpy(leaving.destination, ip->destination, sizeof(leaving.destination));
		leaving.sport = *(be16 *)(ip + 1);
		leaving.dport = *((be16 *)(ip + 1) + 1);
	} else {
		return;
	}
	if (leaving.l4_protocol != PROTOCOL_TCP && leaving.l4_protocol != PROTOCOL_UDP)
		return;
	ethernet = data;
	confirm(&leaving, ethernet, skb->ingress_ifindex, egress->ifindex, time_of(tag, bpf_ktime_get_coarse_ns()));
}

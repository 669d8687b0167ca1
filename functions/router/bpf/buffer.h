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

/* Adjusts a packet's TCP or UDP checksum to a flow's addresses and ports, wherever the kernel has it. */
static ALWAYS_INLINE int adjust_buffer(struct __sk_buff *skb, const struct flow *flow, u32 family, u32 protocol)
{
	u32 transport = ETHERNET_BYTES + (family == FAMILY_IPV4 ? sizeof(struct ipv4) : sizeof(struct ipv6));
	u32 checksum = transport +
		       (protocol == PROTOCOL_TCP ? __builtin_offsetof(struct tcp, checksum) : __builtin_offsetof(struct udp, checksum));
	u64 flags = protocol == PROTOCOL_UDP ? ZERO_IS_NONE : 0;

	if (flow->address_difference &&
	    bpf_l4_csum_replace(skb, checksum, 0, flow->address_difference, flags | PSEUDO_HEADER))
		return PASS_NO_MEMORY;
	if (flow->port_difference && bpf_l4_csum_replace(skb, checksum, 0, flow->port_difference, flags))
		return DROP_UNFINISHED;
	return FORWARD;
}

/* Writes what is new in a packet's headers: where it goes in the Ethernet header, if that is known; the TTL; a flow's addresses and ports,
 * if it is one's. */
static ALWAYS_INLINE int write_buffer(struct __sk_buff *skb, const struct bpf_fib_lookup *lookup, const struct flow *flow, int is_known)
{
	void *data = (void *)(u64)skb->data, *end = (void *)(u64)skb->data_end;
	struct ethernet *ethernet = data;

	/* They have been looked at. The verifier doesn't know. */
	if (data + LEAST_IPV4 > end)
		return DROP_UNFINISHED;
	if (is_known) {
		__builtin_memcpy(ethernet->to, lookup->destination_mac, 6);
		__builtin_memcpy(ethernet->from, lookup->source_mac, 6);
	}
	if (lookup->family == FAMILY_IPV4) {
		struct ipv4 *ip = data + ETHERNET_BYTES;
		u32 sum = (u32)ip->checksum + BE16(0x0100);

		/* RFC 1624; the sum of a TTL that is one less. What the kernel knows of the sum of all stays right, since the header's own
		 * doesn't change. */
		ip->checksum = (u16)(sum + (sum >= 0xffff));
		ip->ttl--;
		if (flow) {
			be16 *ports = (be16 *)(ip + 1);

			ip->source = flow->source[0];
			ip->destination = flow->destination[0];
			ip->checksum = adjusted(ip->checksum, flow->address_difference);
			ports[0] = flow->sport;
			ports[1] = flow->dport;
		}
	} else {
		struct ipv6 *ip = data + ETHERNET_BYTES;
		/* What the sum of all differs by where the kernel knows it: the hop limit is the upper half of a word. */
		u32 difference = ~0x100U;

		if (data + LEAST_IPV6 > end)
			return DROP_UNFINISHED;
		ip->hop_limit--;
		if (flow) {
			be16 *ports = (be16 *)(ip + 1);

			__builtin_memcpy(ip->source, flow->source, sizeof(ip->source));
			__builtin_memcpy(ip->destination, flow->destination, sizeof(ip->destination));
			ports[0] = flow->sport;
			ports[1] = flow->dport;
			difference += flow->address_difference;
			difference += difference < flow->address_difference;
		}
		bpf_csum_update(skb, difference);
	}
	return FORWARD;
}

/* Sends a socket buffer on to a neighbour that the kernel looks up, and resolves if it has to. */
static ALWAYS_INLINE void redirect_to_neighbour(const struct bpf_fib_lookup *lookup, u32 next_hop_family)
{
	struct bpf_redir_neigh neighbour = { .family = next_hop_family };

	__builtin_memcpy(neighbour.next_hop, lookup->destination, sizeof(neighbour.next_hop));
	bpf_redirect_neigh(lookup->ifindex, &neighbour, sizeof(neighbour), 0);
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

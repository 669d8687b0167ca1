// SPDX-License-Identifier: MIT OR Apache-2.0
/* Which packets come to AF_XDP sockets. Whatever a program is not sure about stays with the kernel: so does every packet of a receive
 * queue that has no socket, and all of them once the sockets are gone. */

#include "kernel.h"

const char gpl_compatible[] SEC("license") = "Dual MIT/GPL";

/* By receive queue. The loader makes it as long as the interface has queues. */
struct {
	MAP_UINT(type, MAP_XSKMAP);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
	MAP_UINT(max_entries, 1);
} sockets SEC(".maps");

struct settings {
	/* The interface's own. */
	u8 mac[6];
	/* Packets whose time to live ends here stay with the kernel, which answers them. */
	u8 pass_expiring;
	/* All of these families stay with the kernel, whoever it is for. */
	u8 leave_ipv4;
	u8 leave_ipv6;
};

ARRAY(MAP_ARRAY, struct settings, 1) settings SEC(".maps");

/* The kernel's own addresses. Most boxes have a handful, so each takes memory only when it comes. */
#define OWN_ADDRESSES 65536

/* UDP ports at which tunnels end that sockets get the datagrams of, 0 is none; and whether they get IP packets in IPv4 packets, and GRE. */
struct tunnel_ends {
	be16 ports[2];
	u8 packets;
	u8 reserved[3];
};

struct ipv6_address {
	be32 words[4];
};

HASH(be32, struct tunnel_ends, OWN_ADDRESSES) own_ipv4 SEC(".maps");

HASH(struct ipv6_address, struct tunnel_ends, OWN_ADDRESSES) own_ipv6 SEC(".maps");

static ALWAYS_INLINE int expires(const struct settings *settings, u8 time_to_live)
{
	return settings->pass_expiring && time_to_live <= 1;
}

/* Whether a tunnel ends there. Whoever reassembles fragments is no socket here, and only the first has ports. */
static ALWAYS_INLINE int ends_tunnel(const struct tunnel_ends *ends, const void *transport, const void *end)
{
	const be16 *ports = transport;

	if ((const void *)(ports + 2) > end || !ports[1])
		return 0;
	return ports[1] == ends->ports[0] || ports[1] == ends->ports[1];
}

static ALWAYS_INLINE int is_transit_ipv4(const struct settings *settings, const struct ipv4 *ip, const void *end)
{
	const u8 *destination = (const u8 *)&ip->destination;
	const struct tunnel_ends *ends;

	if ((const void *)(ip + 1) > end || expires(settings, ip->ttl))
		return 0;
	/* This network, loopback (RFC 6890), groups and what was never assigned, with the limited broadcast. */
	if (destination[0] == 0 || destination[0] == 127 || destination[0] >= 224)
		return 0;
	/* Link-local (RFC 3927): never forwarded. */
	if (destination[0] == 169 && destination[1] == 254)
		return 0;
	ends = bpf_map_lookup_elem(&own_ipv4, destination);
	if (!ends)
		return 1;
	if (ip->version_length != 0x45 || (ip->fragment & IPV4_IS_FRAGMENT))
		return 0;
	if (ip->protocol == PROTOCOL_IPIP || ip->protocol == PROTOCOL_IPV6 || ip->protocol == PROTOCOL_GRE)
		return ends->packets;
	if (!ends->ports[0] || ip->protocol != PROTOCOL_UDP)
		return 0;
	return ends_tunnel(ends, ip + 1, end);
}

/* RFC 4291, 2.5.6 */
static ALWAYS_INLINE int is_link_local(const be32 *address)
{
	return (address[0] & BE32(0xffc00000)) == BE32(0xfe800000);
}

static ALWAYS_INLINE int is_transit_ipv6(const struct settings *settings, const struct ipv6 *ip, const void *end)
{
	const struct tunnel_ends *ends;

	if ((const void *)(ip + 1) > end || expires(settings, ip->hop_limit))
		return 0;
	/* To a group. */
	if (*(const u8 *)ip->destination == 0xff)
		return 0;
	/* Link-local, either end: never forwarded. */
	if (is_link_local(ip->source) || is_link_local(ip->destination))
		return 0;
	ends = bpf_map_lookup_elem(&own_ipv6, ip->destination);
	if (!ends)
		return 1;
	return ends->ports[0] && ip->next_header == PROTOCOL_UDP && ends_tunnel(ends, ip + 1, end);
}

/* Whether a packet passes through the box. For the box itself is all that goes to a group or to another Ethernet address than the
 * interface's own: an interface on this one with an address of its own, a virtual machine, or another host, if somebody listens to
 * all. Behind a second tag, or a provider's, are interfaces that we know nothing of. */
static ALWAYS_INLINE int is_transit(const struct xdp_md *context, const struct settings *settings)
{
	const void *data = (void *)(u64)context->data;
	const void *end = (void *)(u64)context->data_end;
	const struct ethernet *ethernet = data;
	be16 protocol;

	data += sizeof(*ethernet);
	if (data > end || ethernet->to[0] & 1)
		return 0;
	if (*(const u32 *)ethernet->to != *(const u32 *)settings->mac ||
	    *(const u16 *)(ethernet->to + 4) != *(const u16 *)(settings->mac + 4))
		return 0;
	protocol = ethernet->protocol;
	if (protocol == ETHERTYPE_VLAN) {
		const struct vlan_tag *tag = data;

		data += sizeof(*tag);
		if (data > end)
			return 0;
		protocol = tag->protocol;
	}
	if (protocol == ETHERTYPE_IPV4 && !settings->leave_ipv4)
		return is_transit_ipv4(settings, data, end);
	if (protocol == ETHERTYPE_IPV6 && !settings->leave_ipv6)
		return is_transit_ipv6(settings, data, end);
	return 0;
}

static ALWAYS_INLINE int all(struct xdp_md *context)
{
	/* To the kernel where there is no socket. */
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

static ALWAYS_INLINE int transit(struct xdp_md *context)
{
	u32 key = 0;
	const struct settings *own = bpf_map_lookup_elem(&settings, &key);

	if (!own || !is_transit(context, own))
		return XDP_PASS;
	return all(context);
}

static ALWAYS_INLINE int none(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

/* Each also for drivers that make packets of several buffers, which run no other. */
#define PROGRAM(steering)                                      \
	SEC("xdp")                                             \
	int warmlane_##steering(struct xdp_md *context)        \
	{                                                      \
		return steering(context);                      \
	}                                                      \
	SEC("xdp.frags")                                       \
	int warmlane_##steering##_frags(struct xdp_md *context) \
	{                                                      \
		return steering(context);                      \
	}

PROGRAM(all)
PROGRAM(transit)
PROGRAM(none)

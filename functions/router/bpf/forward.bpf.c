// SPDX-License-Identifier: MIT OR Apache-2.0
/* Forwards packets inside the kernel, by the kernel's own routes: at the XDP hook frames of a driver, at the tc hook the kernel's
 * socket buffers. docs/router.md says what is passed to the kernel. */

#include "buffer.h"
#include "capture.h"
#include "routes.h"

const char gpl_compatible[] SEC("license") = "Dual MIT/GPL";

/* Where frames can be redirected to, by the interface's number. */
struct {
	MAP_UINT(type, MAP_DEVMAP_HASH);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
	MAP_UINT(max_entries, 4096);
} devices SEC(".maps");

/* When the kernel was last shown that a neighbour is in use, by its address and interface. */
#define NEIGHBOUR_SLOTS 1024
/* In ticks of the kernel's clock, of which there are 100 to 1,000 a second. */
#define NEIGHBOUR_TICKS 250

ARRAY(MAP_ARRAY, u64, NEIGHBOUR_SLOTS) neighbour_checks SEC(".maps");

/* The kernel checks neighbours that it sends to. It sees no packet that is redirected, so it gets one a second to send. */
static ALWAYS_INLINE int is_due_for_check(const struct bpf_fib_lookup *lookup)
{
	u32 slot = lookup->ifindex * 0x9e3779b1;
	u64 now = bpf_jiffies64();
	u64 *last;

	slot ^= *(const u32 *)(lookup->destination_mac + 2) * 0x85ebca6b;
	slot >>= 22;
	last = bpf_map_lookup_elem(&neighbour_checks, &slot);
	if (!last || now - *last < NEIGHBOUR_TICKS)
		return 0;
	*last = now;
	return 1;
}

/* Whether a sender has left the checksum to hardware that there isn't: it is the sum of the pseudo header alone then. */
static ALWAYS_INLINE int is_checksum_left(const struct bpf_fib_lookup *lookup, u32 addresses, u32 length, const u8 *transport,
					  const void *end)
{
	u32 sum;

	/* Two branches with constants: without CAP_PERFMON the verifier allows no other sums of pointers. */
	if (lookup->l4_protocol == PROTOCOL_TCP) {
		if (transport + 18 > (const u8 *)end)
			return 0;
		sum = *(const u16 *)(transport + 16);
		KEEP_APART(sum);
	} else if (lookup->l4_protocol == PROTOCOL_UDP) {
		if (transport + 8 > (const u8 *)end)
			return 0;
		sum = *(const u16 *)(transport + 6);
	} else {
		return 0;
	}
	return sum == fold(addresses + BE16(lookup->l4_protocol) + BE16(length));
}

struct frame {
	void *network;
	const struct ingress *ingress;
	be16 protocol;
	u8 is_tagged;
};

/* The frame's tag, if it has one, and who it is for. */
static ALWAYS_INLINE int examine_frame(void *data, void *end, const struct settings *set, struct frame *frame)
{
	struct ethernet *ethernet = data;
	struct vlan_tag *tag = (void *)(ethernet + 1);

	if ((void *)(tag + 1) > end)
		return PASS_MALFORMED;
	if (*(u32 *)ethernet->to != *(const u32 *)set->mac || *(u16 *)(ethernet->to + 4) != *(const u16 *)(set->mac + 4))
		return PASS_OTHER_HOST;
	frame->network = tag;
	frame->protocol = ethernet->protocol;
	frame->ingress = &set->untagged;
	frame->is_tagged = 0;
	if (frame->protocol == ETHERTYPE_VLAN) {
		u32 vlan = BE16(tag->tci) & 0xfff;

		frame->network = tag + 1;
		frame->protocol = tag->protocol;
		frame->ingress = bpf_map_lookup_elem(&vlans, &vlan);
		frame->is_tagged = 1;
		if (!frame->ingress)
			return PASS_VLAN;
	}
	return FORWARD;
}

static ALWAYS_INLINE int forward_frame(struct xdp_md *xdp, const struct settings *set, struct counters *count, u64 frame_bytes,
				       u32 *device)
{
	void *data = (void *)(u64)xdp->data, *end = (void *)(u64)xdp->data_end;
	struct bpf_fib_lookup lookup = {};
	struct way way = {};
	struct frame frame;
	struct ethernet *ethernet;
	struct flow *flow = 0;
	u32 addresses, length;
	u8 *transport;
	int is_fragment, reason;

	reason = examine_frame(data, end, set, &frame);
	if (reason)
		return reason;
	frame_bytes -= frame.is_tagged ? sizeof(struct ethernet) + sizeof(struct vlan_tag) : sizeof(struct ethernet);
	if (frame.protocol == ETHERTYPE_IPV4) {
		struct ipv4 *ip = frame.network;

		if ((void *)(ip + 1) > end)
			return PASS_MALFORMED;
		reason = examine_ipv4(set, frame.ingress, ip, frame_bytes, &lookup);
		if (reason)
			return reason;
		is_fragment = ip->fragment & IPV4_IS_FRAGMENT;
		transport = (u8 *)(ip + 1);
		addresses = sum32(ip->source) + sum32(ip->destination);
		length = lookup.length_or_mtu - sizeof(*ip);
	} else if (frame.protocol == ETHERTYPE_IPV6) {
		struct ipv6 *ip = frame.network;

		if ((void *)(ip + 1) > end)
			return PASS_MALFORMED;
		reason = examine_ipv6(frame.ingress, ip, frame_bytes, &lookup);
		if (reason)
			return reason;
		is_fragment = 0;
		transport = (u8 *)(ip + 1);
		addresses = sum32(ip->source[0]) + sum32(ip->source[1]) + sum32(ip->source[2]) + sum32(ip->source[3]) +
			    sum32(ip->destination[0]) + sum32(ip->destination[1]) + sum32(ip->destination[2]) +
			    sum32(ip->destination[3]);
		length = lookup.length_or_mtu - sizeof(*ip);
	} else {
		return PASS_NOT_IP;
	}
	if (!is_fragment && transport + 4 <= (u8 *)end) {
		reason = examine_transport(transport, &lookup);
		if (reason)
			return reason;
		if (set->checksums_left && is_checksum_left(&lookup, addresses, length, transport, end))
			return PASS_CHECKSUM_LEFT;
	}
	if (is_established_only(frame.ingress, &lookup)) {
		u32 tcp_flags = 0;

		if (is_fragment || transport + sizeof(struct udp) > (u8 *)end)
			return PASS_NOT_ESTABLISHED;
		if (lookup.l4_protocol == PROTOCOL_TCP) {
			if (transport + sizeof(struct tcp) > (u8 *)end)
				return PASS_NOT_ESTABLISHED;
			tcp_flags = ((struct tcp *)transport)->flags;
		}
		reason = find_flow(set, frame.ingress, &lookup, tcp_flags, &flow);
		if (reason)
			return reason;
	}
	if (lookup.family == FAMILY_IPV4 && (frame.ingress->flags & SOURCE_HAS_ROUTE)) {
		reason = check_reverse_path(xdp, frame.ingress, &lookup);
		if (reason)
			return reason;
	}
	if (may_exceed_route_mtu(set, &lookup, lookup.length_or_mtu))
		return PASS_TOO_LONG;
	lookup.ifindex = frame.ingress->ifindex;
	reason = find_way(xdp, set, count, &lookup, &way);
	if (reason)
		return reason;
	if (is_to_be_redirected(frame.ingress, &lookup))
		return PASS_SAME_INTERFACE;
	if (flow && has_moved(flow, &lookup))
		return PASS_UNCONFIRMED;
	if (!(way.egress.flags & TAKES_FRAMES))
		return PASS_OTHER_INTERFACE;
	if (!way.is_known && is_due_for_check(&lookup))
		return PASS_NEIGHBOUR_CHECK;
	/* From here on the frame is changed. Room for a tag first, for that may fail. */
	if (way.egress.vlan && !frame.is_tagged) {
		if (bpf_xdp_adjust_head(xdp, -(int)sizeof(struct vlan_tag)))
			return PASS_NO_MEMORY;
	} else if (!way.egress.vlan && frame.is_tagged) {
		if (bpf_xdp_adjust_head(xdp, sizeof(struct vlan_tag)))
			return PASS_NO_MEMORY;
	}
	ethernet = data = (void *)(u64)xdp->data;
	end = (void *)(u64)xdp->data_end;
	/* It can't be too short: it had a header behind the tag. The verifier doesn't know. */
	if (data + sizeof(*ethernet) + sizeof(struct vlan_tag) + sizeof(struct ipv4) > end)
		return DROP_UNFINISHED;
	__builtin_memcpy(ethernet->to, lookup.destination_mac, 6);
	__builtin_memcpy(ethernet->from, lookup.source_mac, 6);
	data = ethernet + 1;
	if (way.egress.vlan) {
		struct vlan_tag *tag = data;

		ethernet->protocol = ETHERTYPE_VLAN;
		tag->tci = BE16(way.egress.vlan);
		tag->protocol = frame.protocol;
		data = tag + 1;
	} else {
		ethernet->protocol = frame.protocol;
	}
	if (frame.protocol == ETHERTYPE_IPV4) {
		struct ipv4 *ip = data;
		u32 sum = (u32)ip->checksum + BE16(0x0100);

		/* RFC 1624; the sum of a TTL that is one less. */
		ip->checksum = (u16)(sum + (sum >= 0xffff));
		ip->ttl--;
		if (flow) {
			ip->source = flow->source[0];
			ip->destination = flow->destination[0];
			ip->checksum = adjusted(ip->checksum, flow->address_difference);
			transport = (u8 *)(ip + 1);
		}
	} else {
		struct ipv6 *ip = data;

		ip->hop_limit--;
		if (flow) {
			if ((void *)(ip + 1) > end)
				return DROP_UNFINISHED;
			__builtin_memcpy(ip->source, flow->source, sizeof(ip->source));
			__builtin_memcpy(ip->destination, flow->destination, sizeof(ip->destination));
			transport = (u8 *)(ip + 1);
		}
	}
	*device = way.egress.device;
	if (!flow)
		return FORWARD;
	if (translate_transport(flow, lookup.l4_protocol, transport, end))
		return DROP_UNFINISHED;
	count_flow(flow, frame_bytes);
	return FORWARD_ESTABLISHED;
}

static ALWAYS_INLINE int forward_at_xdp(struct xdp_md *xdp)
{
	u32 zero = 0, device = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct copy *copy;
	u64 bytes;
	u32 reason;

	if (!set || !count)
		return XDP_PASS;
	/* A difference of pointers would need CAP_PERFMON. */
	bytes = bpf_xdp_get_buff_len(xdp);
	count->received++;
	count->bytes += bytes;
	copy = copy_frame(xdp, bytes);
	reason = forward_frame(xdp, set, count, bytes, &device);
	count_reason(reason);
	if (copy)
		end_copy(copy, reason);
	if (reason <= FORWARD_ESTABLISHED)
		return bpf_redirect_map(&devices, device, XDP_DROP);
	return reason >= DROP_BLACKHOLE ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int warmlane_xdp(struct xdp_md *xdp)
{
	return forward_at_xdp(xdp);
}

/* For interfaces whose frames may come in several buffers. */
SEC("xdp.frags")
int warmlane_frags(struct xdp_md *xdp)
{
	return forward_at_xdp(xdp);
}

static ALWAYS_INLINE int forward_buffer(struct __sk_buff *skb, const struct settings *set, struct counters *count)
{
	void *data;
	const struct ingress *ingress = &set->untagged;
	struct bpf_fib_lookup lookup = {};
	struct way way = {};
	struct flow *flow = 0;
	u32 route_mtu, network_bytes;
	int reason, is_fragment = 0;
	u8 *transport;

	if (skb->pkt_type != PACKET_HOST)
		return PASS_OTHER_HOST;
	if (skb->mark)
		return PASS_MARKED;
	if (!is_led(set))
		return PASS_NOT_LED;
	if (skb->vlan_present) {
		u32 vlan = skb->vlan_tci & 0xfff;

		if (skb->vlan_proto != ETHERTYPE_VLAN)
			return PASS_VLAN;
		ingress = bpf_map_lookup_elem(&vlans, &vlan);
		if (!ingress)
			return PASS_VLAN;
	}
	if (skb->protocol == ETHERTYPE_IPV4) {
		struct ipv4 *ip;

		if (!pull(skb, LEAST_IPV4, &data))
			return PASS_MALFORMED;
		ip = data + ETHERNET_BYTES;
		reason = examine_ipv4(set, ingress, ip, skb->len - ETHERNET_BYTES, &lookup);
		if (reason)
			return reason;
		transport = (u8 *)(ip + 1);
		network_bytes = sizeof(*ip);
		is_fragment = ip->fragment & IPV4_IS_FRAGMENT;
		if (!is_fragment) {
			reason = examine_transport(transport, &lookup);
			if (reason)
				return reason;
		}
	} else if (skb->protocol == ETHERTYPE_IPV6) {
		struct ipv6 *ip;

		if (!pull(skb, LEAST_IPV6, &data))
			return PASS_MALFORMED;
		ip = data + ETHERNET_BYTES;
		reason = examine_ipv6(ingress, ip, skb->len - ETHERNET_BYTES, &lookup);
		if (reason)
			return reason;
		network_bytes = sizeof(*ip);
		reason = examine_transport((u8 *)(ip + 1), &lookup);
		if (reason)
			return reason;
	} else {
		return PASS_NOT_IP;
	}
	if (is_established_only(ingress, &lookup)) {
		if (is_fragment)
			return PASS_NOT_ESTABLISHED;
		reason = find_flow_of_buffer(skb, set, ingress, &lookup, network_bytes, &flow);
		if (reason)
			return reason;
	}
	if (skb->gso_size) {
		u32 segment = longest_segment(skb, &lookup, network_bytes);

		if (may_exceed_route_mtu(set, &lookup, segment ? segment : ANY_LENGTH))
			return PASS_SEGMENTS;
		/* Whether segments of other kinds are too long, the interface's MTU says below. */
		lookup.length_or_mtu = segment ? segment : 1;
	} else if (may_exceed_route_mtu(set, &lookup, lookup.length_or_mtu)) {
		return PASS_TOO_LONG;
	}
	if (lookup.family == FAMILY_IPV4 && (ingress->flags & SOURCE_HAS_ROUTE)) {
		reason = check_reverse_path(skb, ingress, &lookup);
		if (reason)
			return reason;
	}
	lookup.ifindex = ingress->ifindex;
	reason = find_way(skb, set, count, &lookup, &way);
	/* The kernel holds what waits for a neighbour, and tells senders if none answers; of redirected packets it would not. Other links
	 * have no neighbours. */
	if (reason == PASS_NO_NEIGHBOUR && way.has_egress && !(way.egress.flags & IS_ETHERNET))
		reason = FORWARD;
	if (reason)
		return reason;
	if (is_to_be_redirected(ingress, &lookup))
		return PASS_SAME_INTERFACE;
	if (flow && has_moved(flow, &lookup))
		return PASS_UNCONFIRMED;
	if (!way.has_egress)
		return PASS_OTHER_INTERFACE;
	route_mtu = lookup.length_or_mtu;
	if (skb->gso_size && lookup.l4_protocol != PROTOCOL_TCP) {
		u32 mtu = 0;

		if (bpf_check_mtu(skb, lookup.ifindex, &mtu, 0, CHECK_SEGMENTS) || mtu != route_mtu)
			return PASS_SEGMENTS;
	}
	/* From here on the packet is changed. */
	if (flow) {
		reason = adjust_buffer(skb, flow, lookup.family, lookup.l4_protocol);
		if (reason)
			return reason;
	}
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return DROP_UNFINISHED;
	if (write_buffer(skb, &lookup, flow, way.is_known))
		return DROP_UNFINISHED;
	/* With these arguments they can't fail. */
	if (way.is_known)
		bpf_redirect(lookup.ifindex, 0);
	else
		redirect_to_neighbour(&lookup, way.next_hop_family);
	if (!flow)
		return FORWARD;
	count_flow(flow, skb->len);
	return FORWARD_ESTABLISHED;
}

SEC("classifier")
int warmlane_tc(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct copy *copy;
	u32 reason;

	if (!set || !count)
		return TC_NEXT;
	count->received++;
	count->bytes += skb->len;
	if (set->offloads_established && skb->tc_index && is_led(set))
		skb->tc_index = 0;
	copy = copy_buffer(skb);
	reason = forward_buffer(skb, set, count);
	if (reason == PASS_SAMPLE || reason == PASS_UNCONFIRMED)
		skb->tc_index = tag_of(bpf_ktime_get_coarse_ns());
	count_reason(reason);
	if (copy)
		end_copy(copy, reason);
	if (reason <= FORWARD_ESTABLISHED)
		return TC_REDIRECT;
	return reason >= DROP_BLACKHOLE ? TC_DROP : TC_NEXT;
}

/* Where packets come in that the driver's program has passed. */
SEC("classifier")
int warmlane_tag(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (set && is_led(set))
		skb->tc_index = tag_of(bpf_ktime_get_coarse_ns());
	return TC_NEXT;
}

/* Where packets leave. */
SEC("classifier")
int warmlane_leave(struct __sk_buff *skb)
{
	u32 zero = 0, tag = skb->tc_index;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (set && (tag & TAGGED) && is_led(set)) {
		skb->tc_index = 0;
		examine_leaving(skb, set, tag);
	}
	return TC_NEXT;
}

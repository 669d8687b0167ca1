/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the programs here use of the kernel's interface to BPF (include/uapi/linux/bpf.h, if_ether.h, ip.h, ipv6.h). Own declarations,
 * so that the compiled objects are the same whichever headers a machine has. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
/* In network byte order. */
typedef u16 be16;
typedef u32 be32;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))
/* Keeps the compiler from making one branch of two that end alike. */
#define KEEP_APART(value) __asm__ volatile("" : "+r"(value))

/* The objects are for little-endian machines. */
#define BE16(value) ((be16)__builtin_bswap16(value))
#define BE32(value) ((be32)__builtin_bswap32(value))

/* The loader reads a map's properties from these members' types. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) value *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_LPM_TRIE = 11,
	MAP_ARRAY_OF_MAPS = 12,
	MAP_XSKMAP = 17,
	MAP_QUEUE = 22,
	MAP_DEVMAP_HASH = 25,
};

/* BPF_F_NO_PREALLOC */
#define NO_PREALLOCATION 1

/* An array of values, or, of MAP_PERCPU_ARRAY, one for each CPU. */
#define ARRAY(kind, of, entries)                       \
	struct {                                       \
		MAP_UINT(type, kind);                  \
		MAP_TYPE(key, u32);                    \
		MAP_TYPE(value, of);                   \
		MAP_UINT(max_entries, entries);        \
	}

/* Values by key, each of which takes memory only when it comes. */
#define HASH(from, of, entries)                        \
	struct {                                       \
		MAP_UINT(type, MAP_HASH);              \
		MAP_TYPE(key, from);                   \
		MAP_TYPE(value, of);                   \
		MAP_UINT(max_entries, entries);        \
		MAP_UINT(map_flags, NO_PREALLOCATION); \
	}

enum {
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_REDIRECT = 4,
};

/* At tcx it means the next program (TCX_NEXT), at clsact the next filter (TC_ACT_UNSPEC). */
#define TC_NEXT (-1)
#define TC_DROP 2
#define TC_REDIRECT 7

/* Of bpf_redirect: to the interface's entrance, not out of it. */
#define INTO_INGRESS 1

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
	u32 napi_id;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 data_meta;
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	u64 sk;
	u32 gso_size;
	u32 tstamp_type;
	u64 hwtstamp;
};

#define PACKET_HOST 0

struct ethernet {
	u8 to[6];
	u8 from[6];
	be16 protocol;
};

struct vlan_tag {
	be16 tci;
	be16 protocol;
};

#define ETHERTYPE_IPV4 BE16(0x0800)
#define ETHERTYPE_IPV6 BE16(0x86dd)
#define ETHERTYPE_VLAN BE16(0x8100)

struct ipv4 {
	u8 version_length;
	u8 tos;
	be16 length;
	be16 id;
	be16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	be32 source;
	be32 destination;
};

/* More fragments, or an offset. */
#define IPV4_IS_FRAGMENT BE16(0x3fff)

struct ipv6 {
	be32 version_class_flow;
	be16 payload_length;
	u8 next_header;
	u8 hop_limit;
	be32 source[4];
	be32 destination[4];
};

struct tcp {
	be16 sport;
	be16 dport;
	be32 sequence;
	be32 acknowledged;
	u8 offset;
	u8 flags;
	be16 window;
	u16 checksum;
	be16 urgent;
};

struct udp {
	be16 sport;
	be16 dport;
	be16 length;
	u16 checksum;
};

enum {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_IPIP = 4,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_IPV6 = 41,
	PROTOCOL_GRE = 47,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_SCTP = 132,
	PROTOCOL_UDPLITE = 136,
};

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

struct bpf_fib_lookup {
	u8 family;
	u8 l4_protocol;
	be16 sport;
	be16 dport;
	/* In: the packet's length; out: the route's MTU. */
	u16 length_or_mtu;
	/* In: where the packet came in; out: where it leaves. */
	u32 ifindex;
	/* tos of IPv4 is the first byte. */
	be32 flow_info;
	be32 source[4];
	/* Out: the next hop. */
	be32 destination[4];
	be16 vlan_protocol;
	be16 vlan_tci;
	u8 source_mac[6];
	u8 destination_mac[6];
};

enum {
	FIB_SUCCESS = 0,
	FIB_BLACKHOLE = 1,
	FIB_UNREACHABLE = 2,
	FIB_PROHIBIT = 3,
	FIB_NOT_FORWARDED = 4,
	FIB_FORWARDING_DISABLED = 5,
	FIB_UNSUPPORTED_TUNNEL = 6,
	FIB_NO_NEIGHBOUR = 7,
	FIB_FRAGMENTATION_NEEDED = 8,
};

struct bpf_redir_neigh {
	u32 family;
	be32 next_hop[4];
};

#define RECOMPUTE_CHECKSUM 1
/* Of bpf_l4_csum_replace: the sum of the pseudo header changes; a checksum of 0 is none. */
#define PSEUDO_HEADER 0x10
#define ZERO_IS_NONE 0x20
#define CHECK_SEGMENTS 1

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 bytes, u64 flags) = (void *)9;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*bpf_skb_vlan_pop)(struct __sk_buff *skb) = (void *)19;
static long (*bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *skb, u32 offset, void *to, u32 bytes) = (void *)26;
static long (*bpf_skb_pull_data)(struct __sk_buff *skb, u32 bytes) = (void *)39;
static long (*bpf_csum_update)(struct __sk_buff *skb, u32 difference) = (void *)40;
static long (*bpf_xdp_adjust_head)(struct xdp_md *xdp, int bytes) = (void *)44;
static long (*bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*bpf_fib_lookup)(void *context, struct bpf_fib_lookup *lookup, int bytes, u32 flags) = (void *)69;
static long (*bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static u64 (*bpf_jiffies64)(void) = (void *)118;
static long (*bpf_redirect_neigh)(u32 ifindex, struct bpf_redir_neigh *neighbour, int bytes, u64 flags) = (void *)152;
static u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)160;
static long (*bpf_check_mtu)(void *context, u32 ifindex, u32 *mtu, s32 difference, u64 flags) = (void *)163;
static u64 (*bpf_xdp_get_buff_len)(struct xdp_md *xdp) = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *xdp, u32 offset, void *to, u32 bytes) = (void *)189;

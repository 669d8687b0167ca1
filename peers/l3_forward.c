/*
 * IPv4 forwarding as one writes it with DPDK: the peer of `warmlane bench l3-forward` and `flows-forward`.
 *
 * One lane receives bursts from port 0, or copies frames of a capture into buffers by itself, validates each packet (RFC 1812 section 5.2.2, with the header checksum in
 * software), looks all destinations up at once in a table of real size, or all five-tuples among many flows as l3fwd does in its EM mode, decrements the lifetime, rewrites both Ethernet
 * addresses and gets rid of the packets. Rounds are measured on request: the program prints "ready", then answers each
 * line "go SECONDS" on standard input with one JSON object on standard output, until its input ends.
 */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_fib.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_prefetch.h>

#include "serve.h"

#define LARGEST_BURST 256
#define LARGEST_HOPS 32768
#define DESCRIPTORS 1024
/* The rest of what rte_lpm_lookup_bulk returns is flags and the prefix's length. */
#define LPM_HOP 0xffffff
/* Packets between two looks at the clock: well below a millisecond of work. */
#define PACKETS_PER_CLOCK 8192

enum lookup { LOOKUP_LPM, LOOKUP_FIB_SCALAR, LOOKUP_FIB_AVX512, LOOKUP_EM, LOOKUP_EM_DATA };
enum sink { SINK_PORT, SINK_FREE, SINK_RETURN };

struct options {
	const char *routes;
	/* Whose frames to copy; NULL to receive from port 0. */
	const char *capture;
	/* A capture whose flows are in the table, and how many there are with others; for exact match. */
	const char *flows_of;
	unsigned int flows;
	unsigned int slots;
	enum lookup lookup;
	enum sink sink;
	unsigned int burst;
	unsigned int hops;
	unsigned int prefetch;
	unsigned int stored;
	unsigned int working;
	unsigned int data_size;
	const char *pool;
};

/* What a next hop puts in front of the packet. Sixteen bytes, so that four share a cache line. */
struct rewrite {
	struct rte_ether_addr destination;
	struct rte_ether_addr source;
	uint16_t port;
	uint16_t padding;
};

/* A five-tuple as it stands in a packet: protocol, addresses and ports are what is left of 16 bytes from the lifetime on. */
struct flow_key {
	uint64_t words[2];
};

#define FLOW_MASK rte_cpu_to_be_64(0x00ff0000ffffffff)

struct router {
	enum lookup lookup;
	struct rte_fib *fib;
	struct rte_lpm *lpm;
	struct rte_hash *flows;
	/* Next hops by the positions of flows, in one byte each as in l3fwd. */
	uint8_t *flow_hops;
	uint64_t no_route;
	struct rewrite *hops;
};

/* A capture's frames, one behind the other at this distance. */
struct frames {
	uint8_t *data;
	uint16_t *lengths;
	unsigned int count;
	unsigned int next;
	struct rte_mempool *pool;
};

#define FRAME_DISTANCE 128

struct counts {
	uint64_t received;
	uint64_t forwarded;
};

/* ---- The table ---- */

struct route {
	uint32_t address; /* host byte order */
	uint8_t length;
	uint16_t hop;
};

struct routes {
	struct route *items;
	size_t count;
	size_t long_blocks; /* /24 blocks that hold longer prefixes, if the file is sorted */
};

/* Reads lines of "PREFIX [HOP]"; a route without a hop gets its line number modulo `hops`. Skips IPv6. */
static struct routes read_routes(const char *path, unsigned int hops)
{
	struct routes routes = {0};
	size_t capacity = 0;
	uint32_t last_block = UINT32_MAX;
	char line[128];
	FILE *file = fopen(path, "r");

	if (file == NULL)
		fail("cannot open the routes '%s': %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file) != NULL) {
		char text[64];
		unsigned int length, hop = routes.count % hops;
		struct in_addr address;

		if (strchr(line, ':') != NULL)
			continue;
		if (sscanf(line, "%63[0-9.]/%u %u", text, &length, &hop) < 2 || length > 32 || hop >= hops ||
		    inet_pton(AF_INET, text, &address) != 1)
			fail("'%s' is no line of the form PREFIX [HOP] with a hop below %u: %s", path, hops, line);
		if (routes.count == capacity) {
			capacity = capacity ? 2 * capacity : 1 << 20;
			routes.items = realloc(routes.items, capacity * sizeof(*routes.items));
			if (routes.items == NULL)
				fail("no memory for %zu routes", capacity);
		}
		routes.items[routes.count++] = (struct route){ntohl(address.s_addr), length, hop};
		if (length > 24 && ntohl(address.s_addr) >> 8 != last_block) {
			last_block = ntohl(address.s_addr) >> 8;
			routes.long_blocks++;
		}
	}
	fclose(file);
	return routes;
}

static void build_lpm(struct router *router, const struct routes *routes)
{
	struct rte_lpm_config config = {
		.max_rules = routes->count + 1,
		.number_tbl8s = RTE_MAX(256u, routes->long_blocks + 1),
	};

	router->lpm = rte_lpm_create("routes", SOCKET_ID_ANY, &config);
	if (router->lpm == NULL)
		fail("cannot create the table: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->items[i];
		int result = rte_lpm_add(router->lpm, route->address, route->length, route->hop);

		if (result < 0)
			fail("route %zu does not go into the table: %s", i, rte_strerror(-result));
	}
}

static void build_fib(struct router *router, const struct routes *routes)
{
	/* The narrowest entries that hold the hops, the value for "no route" and the second-level blocks: the table's
	 * footprint in cache is what lookups cost. A bit of each entry says which of these it holds. */
	bool narrow = router->no_route < 127 && routes->long_blocks < 127;
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = 2 * routes->count + 1024,
		.dir24_8 = {
			.nh_sz = narrow ? RTE_FIB_DIR24_8_1B : RTE_FIB_DIR24_8_2B,
			.num_tbl8 = narrow ? 127 : RTE_MIN(32767u, routes->long_blocks + 256),
		},
	};
	enum rte_fib_lookup_type kind = RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;

	config.default_nh = router->no_route;
	router->fib = rte_fib_create("routes", SOCKET_ID_ANY, &config);
	if (router->fib == NULL)
		fail("cannot create the table: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->items[i];
		int result = rte_fib_add(router->fib, route->address, route->length, route->hop);

		if (result < 0)
			fail("route %zu does not go into the table: %s", i, rte_strerror(-result));
	}
	if (router->lookup == LOOKUP_FIB_AVX512)
		kind = RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512;
	if (rte_fib_select_lookup(router->fib, kind) != 0) {
		if (router->lookup != LOOKUP_FIB_AVX512)
			fail("the table refuses its scalar lookup");
		fputs("l3_forward: no AVX-512 here (or no --force-max-simd-bitwidth=512): the lookup is scalar\n", stderr);
		router->lookup = LOOKUP_FIB_SCALAR;
		rte_fib_select_lookup(router->fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	}
}

static inline struct flow_key flow_key_of(const uint8_t *frame)
{
	struct flow_key key;

	memcpy(&key, frame + sizeof(struct rte_ether_hdr) + offsetof(struct rte_ipv4_hdr, time_to_live), sizeof(key));
	key.words[0] &= FLOW_MASK;
	return key;
}

static inline uint32_t flow_hash(const void *key, uint32_t length, uint32_t initial)
{
	const uint64_t *words = key;

	RTE_SET_USED(length);
	return rte_hash_crc_8byte(words[1], rte_hash_crc_8byte(words[0], initial));
}

static void add_flow(struct router *router, const struct flow_key *key, unsigned int hop)
{
	int32_t position = rte_hash_add_key_data(router->flows, key, (void *)(uintptr_t)hop);

	if (position == 0)
		position = rte_hash_lookup(router->flows, key);
	if (position < 0)
		fail("a flow does not go into the table: %s; use more --slots", rte_strerror(-position));
	router->flow_hops[position] = hop;
}

static void read_frames(struct frames *frames, const char *path);

/* The flows of a capture, which are UDP's, and others up to the number that is wanted. */
static void build_flows(struct router *router, const struct options *options)
{
	struct rte_hash_parameters parameters = {
		.name = "flows",
		.entries = options->slots,
		.key_len = sizeof(struct flow_key),
		.hash_func = flow_hash,
		.socket_id = rte_socket_id(),
	};
	struct frames frames = {0};
	uint64_t state = 1;

	if (options->hops > UINT8_MAX)
		fail("exact match is for 255 --hops at most");
	router->flows = rte_hash_create(&parameters);
	if (router->flows == NULL)
		fail("cannot create the table: %s", rte_strerror(rte_errno));
	router->flow_hops = rte_zmalloc("flow hops", rte_hash_max_key_id(router->flows) + 1, RTE_CACHE_LINE_SIZE);
	if (router->flow_hops == NULL)
		fail("no memory for the next hops of %u flows", options->slots);
	read_frames(&frames, options->flows_of);
	for (unsigned int i = 0; i < RTE_MAX(options->flows, frames.count); i++) {
		struct flow_key key;

		if (i < frames.count) {
			key = flow_key_of(&frames.data[(size_t)i * FRAME_DISTANCE]);
		} else {
			/* To 32.0.0.0/4: none of the capture's. */
			for (unsigned int word = 0; word < 2; word++) {
				state = state * 6364136223846793005 + 1442695040888963407;
				key.words[word] = state ^ state >> 29;
			}
			key.words[0] = (key.words[0] & FLOW_MASK & ~rte_cpu_to_be_64(0x00ff000000000000)) |
				       rte_cpu_to_be_64((uint64_t)IPPROTO_UDP << 48);
			key.words[1] = (key.words[1] & ~rte_cpu_to_be_64(0xf000000000000000)) |
				       rte_cpu_to_be_64(0x2000000000000000);
		}
		add_flow(router, &key, i % options->hops);
	}
	free(frames.data);
	free(frames.lengths);
}

static void build_routes(struct router *router, const struct options *options)
{
	struct routes routes = read_routes(options->routes, options->hops);

	if (router->lookup == LOOKUP_LPM)
		build_lpm(router, &routes);
	else
		build_fib(router, &routes);
	free(routes.items);
}

static void build_router(struct router *router, const struct options *options)
{
	router->lookup = options->lookup;
	router->no_route = options->hops;
	if (router->lookup == LOOKUP_EM || router->lookup == LOOKUP_EM_DATA)
		build_flows(router, options);
	else
		build_routes(router, options);

	router->hops = rte_zmalloc("hops", (options->hops + 1) * sizeof(*router->hops), RTE_CACHE_LINE_SIZE);
	if (router->hops == NULL)
		fail("no memory for %u next hops", options->hops);
	for (unsigned int i = 0; i < options->hops; i++) {
		struct rewrite *hop = &router->hops[i];

		hop->destination = (struct rte_ether_addr){{0x02, 0, 0, 1, i >> 8, i}};
		hop->source = (struct rte_ether_addr){{0x02, 0, 0, 0, 0, 0x01}};
	}
}

/* ---- The data path ---- */

static inline struct rte_ipv4_hdr *ipv4_of(struct rte_mbuf *packet)
{
	return rte_pktmbuf_mtod_offset(packet, struct rte_ipv4_hdr *, sizeof(struct rte_ether_hdr));
}

/* Headers with options are for a slow path that this program doesn't need: its traffic has none. */
static inline bool valid(const struct rte_mbuf *packet)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(packet, const struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ethernet + 1);
	uint32_t present = rte_pktmbuf_data_len(packet) - sizeof(*ethernet);
	uint16_t total = rte_be_to_cpu_16(ip->total_length);

	return rte_pktmbuf_data_len(packet) >= sizeof(*ethernet) + sizeof(*ip) &&
	       ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && ip->version_ihl == RTE_IPV4_VHL_DEF &&
	       total >= sizeof(*ip) && total <= present && ip->time_to_live > 1 && rte_ipv4_cksum(ip) == 0;
}

static inline void lookup(const struct router *router, const uint32_t *addresses, uint64_t *hops, unsigned int count)
{
	if (router->lookup == LOOKUP_LPM) {
		uint32_t found[LARGEST_BURST];

		rte_lpm_lookup_bulk(router->lpm, addresses, found, count);
		for (unsigned int i = 0; i < count; i++)
			hops[i] = found[i] & RTE_LPM_LOOKUP_SUCCESS ? found[i] & LPM_HOP : router->no_route;
	} else {
		rte_fib_lookup_bulk(router->fib, (uint32_t *)(uintptr_t)addresses, hops, count);
	}
}

/* As l3fwd's em_get_dst_port_ipv4xN, of as many packets at once as the library takes; or with hashes made beforehand, and next hops beside the keys. */
static inline void lookup_flows(const struct router *router, const struct flow_key *keys, uint64_t *hops, unsigned int count)
{
	for (unsigned int done = 0; done < count; done += RTE_HASH_LOOKUP_BULK_MAX) {
		unsigned int some = RTE_MIN(count - done, (unsigned int)RTE_HASH_LOOKUP_BULK_MAX);
		const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];

		for (unsigned int i = 0; i < some; i++)
			pointers[i] = &keys[done + i];
		if (router->lookup == LOOKUP_EM) {
			int32_t positions[RTE_HASH_LOOKUP_BULK_MAX];

			rte_hash_lookup_bulk(router->flows, pointers, some, positions);
			for (unsigned int i = 0; i < some; i++)
				hops[done + i] = positions[i] < 0 ? router->no_route : router->flow_hops[positions[i]];
		} else {
			hash_sig_t hashes[RTE_HASH_LOOKUP_BULK_MAX];
			void *data[RTE_HASH_LOOKUP_BULK_MAX];
			uint64_t hits;

			for (unsigned int i = 0; i < some; i++)
				hashes[i] = flow_hash(pointers[i], sizeof(struct flow_key), 0);
			rte_hash_lookup_with_hash_bulk_data(router->flows, pointers, hashes, some, &hits, data);
			for (unsigned int i = 0; i < some; i++)
				hops[done + i] = hits >> i & 1 ? (uintptr_t)data[i] : router->no_route;
		}
	}
}

static inline void rewrite(struct rte_mbuf *packet, const struct rewrite *hop)
{
	struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ethernet + 1);

	ethernet->dst_addr = hop->destination;
	ethernet->src_addr = hop->source;
	/* The lifetime is the high byte of its word, so the sum grows by 0x100 (RFC 1141, equation 3 for this case). */
	ip->time_to_live--;
	uint32_t sum = ip->hdr_checksum + rte_cpu_to_be_16(0x0100);
	ip->hdr_checksum = sum + (sum >= 0xffff);
}

static inline void dispose(enum sink sink, struct rte_mbuf **packets, unsigned int count)
{
	unsigned int sent = 0;

	switch (sink) {
	case SINK_PORT:
		sent = rte_eth_tx_burst(1, 0, packets, count);
		if (sent < count)
			rte_pktmbuf_free_bulk(packets + sent, count - sent);
		break;
	case SINK_FREE:
		rte_pktmbuf_free_bulk(packets, count);
		break;
	case SINK_RETURN:
		/* What a driver does that was promised RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE: one pool, one segment, one
		 * owner. */
		if (count > 0)
			rte_mempool_put_bulk(packets[0]->pool, (void **)packets, count);
		break;
	}
}

/* What a driver without anything to wait for would do: buffers in bulk, and a copy of each frame. */
static inline unsigned int copy_frames(struct frames *frames, struct rte_mbuf **packets, unsigned int count)
{
	if (rte_pktmbuf_alloc_bulk(frames->pool, packets, count) != 0)
		return 0;
	for (unsigned int i = 0; i < count; i++) {
		uint16_t length = frames->lengths[frames->next];

		rte_memcpy(rte_pktmbuf_mtod(packets[i], void *), &frames->data[(size_t)frames->next * FRAME_DISTANCE],
			   length);
		packets[i]->data_len = length;
		packets[i]->pkt_len = length;
		if (++frames->next == frames->count)
			frames->next = 0;
	}
	return count;
}

static inline void poll(const struct router *router, const struct options *options, struct frames *frames,
			struct counts *counts)
{
	struct rte_mbuf *packets[LARGEST_BURST], *refused[LARGEST_BURST];
	uint32_t addresses[LARGEST_BURST];
	struct flow_key keys[LARGEST_BURST];
	uint64_t hops[LARGEST_BURST];
	bool by_flow = router->flows != NULL;
	unsigned int received = frames->count > 0 ? copy_frames(frames, packets, options->burst) :
						    rte_eth_rx_burst(0, 0, packets, options->burst);
	unsigned int good = 0, bad = 0, leaving = 0;

	for (unsigned int i = 0; i < RTE_MIN(options->prefetch, received); i++)
		rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
	for (unsigned int i = 0; i < received; i++) {
		if (options->prefetch > 0 && i + options->prefetch < received)
			rte_prefetch0(rte_pktmbuf_mtod(packets[i + options->prefetch], void *));
		if (likely(valid(packets[i]))) {
			if (by_flow)
				keys[good] = flow_key_of(rte_pktmbuf_mtod(packets[i], const uint8_t *));
			else
				addresses[good] = rte_be_to_cpu_32(ipv4_of(packets[i])->dst_addr);
			packets[good++] = packets[i];
		} else {
			refused[bad++] = packets[i];
		}
	}
	if (by_flow)
		lookup_flows(router, keys, hops, good);
	else
		lookup(router, addresses, hops, good);
	for (unsigned int i = 0; i < good; i++) {
		if (likely(hops[i] != router->no_route)) {
			rewrite(packets[i], &router->hops[hops[i]]);
			packets[leaving++] = packets[i];
		} else {
			refused[bad++] = packets[i];
		}
	}
	dispose(options->sink, packets, leaving);
	if (unlikely(bad > 0))
		rte_pktmbuf_free_bulk(refused, bad);
	counts->received += received;
	counts->forwarded += leaving;
}

/* ---- Ports ---- */

static void start_port(uint16_t port, struct rte_mempool *pool)
{
	struct rte_eth_conf config = {0};
	int result = rte_eth_dev_configure(port, 1, 1, &config);

	if (result == 0)
		result = rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool);
	if (result == 0)
		result = rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL);
	if (result == 0)
		result = rte_eth_dev_start(port);
	if (result < 0)
		fail("port %u does not start: %s", port, rte_strerror(-result));
}

static uint32_t word(const uint8_t *bytes)
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Reads a capture of the little-endian format (draft-ietf-opsawg-pcap). */
static void read_frames(struct frames *frames, const char *path)
{
	uint8_t header[24];
	unsigned int capacity = 0;
	FILE *file = fopen(path, "r");

	if (file == NULL || fread(header, sizeof(header), 1, file) != 1 ||
	    (word(header) != 0xa1b2c3d4 && word(header) != 0xa1b23c4d))
		fail("'%s' is no capture that this program reads", path);
	while (fread(header, 16, 1, file) == 1) {
		uint32_t length = word(header + 8);

		if (frames->count == capacity) {
			capacity = capacity ? 2 * capacity : 1 << 16;
			frames->data = realloc(frames->data, (size_t)capacity * FRAME_DISTANCE);
			frames->lengths = realloc(frames->lengths, capacity * sizeof(*frames->lengths));
			if (frames->data == NULL || frames->lengths == NULL)
				fail("no memory for %u frames", capacity);
		}
		if (length > FRAME_DISTANCE ||
		    fread(&frames->data[(size_t)frames->count * FRAME_DISTANCE], length, 1, file) != 1)
			fail("'%s' has a frame that is cut off, or longer than %u bytes", path, FRAME_DISTANCE);
		frames->lengths[frames->count++] = length;
	}
	fclose(file);
	if (frames->count == 0)
		fail("'%s' has no frame", path);
}

static void start_ports(const struct options *options, struct frames *frames)
{
	struct rte_mempool *pool;
	unsigned int wanted = (options->capture == NULL) + (options->sink == SINK_PORT);

	if (rte_eth_dev_count_avail() < wanted)
		fail("too few ports: give --vdev=net_pcap0,rx_pcap=FILE,infinite_rx=1, and --vdev=net_null0 for --sink port");
	/* net_pcap keeps the whole capture in buffers of this pool. */
	pool = rte_pktmbuf_pool_create_by_ops("packets", options->stored + options->working - 1,
					      RTE_MEMPOOL_CACHE_MAX_SIZE, 0, RTE_PKTMBUF_HEADROOM + options->data_size,
					      SOCKET_ID_ANY, options->pool);
	if (pool == NULL)
		fail("cannot create the pool '%s': %s", options->pool, rte_strerror(rte_errno));
	for (uint16_t port = 0; port < rte_eth_dev_count_avail(); port++)
		start_port(port, pool);
	frames->pool = pool;
	if (options->capture != NULL)
		read_frames(frames, options->capture);
}

/* ---- Rounds ---- */

struct job {
	const struct router *router;
	const struct options *options;
	struct frames *frames;
};

static struct round work(void *context)
{
	const struct job *job = context;
	struct counts counts = {0};

	for (unsigned int packets = 0; packets < PACKETS_PER_CLOCK; packets += job->options->burst)
		poll(job->router, job->options, job->frames, &counts);
	return (struct round){.packets = counts.received, .forwarded = counts.forwarded};
}

/* ---- Options ---- */

static const char usage[] =
	"usage: l3_forward EAL-OPTIONS -- --routes FILE|--flows-of FILE [OPTION...]\n"
	"  --routes FILE     lines of PREFIX [HOP]\n"
	"  --capture FILE    whose frames, of up to 128 bytes, are copied into buffers, instead of receiving from port 0\n"
	"  --lookup KIND     lpm, fib-scalar or fib-avx512 (default); em (exact match, rte_hash_lookup_bulk) or em-data\n"
	"                    (rte_hash_lookup_with_hash_bulk_data)\n"
	"  --flows-of FILE   a capture whose flows em and em-data have in their table\n"
	"  --flows N         how many flows there are with others (default 1000000)\n"
	"  --slots N         slots for flows (default 1048576)\n"
	"  --sink KIND       where packets end: port (transmit to port 1), free (rte_pktmbuf_free_bulk), return\n"
	"                    (rte_mempool_put_bulk, as drivers do with MBUF_FAST_FREE; default)\n"
	"  --burst N         packets received at once, 1 to 256 (default 64)\n"
	"  --hops N          next hops, 1 to 32766 (default 48)\n"
	"  --prefetch N      packets that data is prefetched ahead of its use, 0 for none (default 4)\n"
	"  --stored N        buffers for the capture, at least its packets (default 65536)\n"
	"  --working N       buffers beside these (default 4096)\n"
	"  --data-size N     bytes of data in a buffer (default 2048)\n"
	"  --pool OPS        ring_mp_mc (default), ring_sp_sc, stack, lf_stack\n";

static struct options parse(int count, char **arguments)
{
	static const char *const lookups[] = {"lpm", "fib-scalar", "fib-avx512", "em", "em-data"};
	static const char *const sinks[] = {"port", "free", "return"};
	static const struct option names[] = {
		{"routes", required_argument, NULL, 'r'},  {"capture", required_argument, NULL, 'c'}, {"lookup", required_argument, NULL, 'l'},
		{"sink", required_argument, NULL, 's'},    {"burst", required_argument, NULL, 'b'},
		{"hops", required_argument, NULL, 'h'},    {"prefetch", required_argument, NULL, 'p'},
		{"stored", required_argument, NULL, 't'},  {"working", required_argument, NULL, 'w'},
		{"data-size", required_argument, NULL, 'o'}, {"pool", required_argument, NULL, 'k'},
		{"flows-of", required_argument, NULL, 'f'}, {"flows", required_argument, NULL, 'n'},
		{"slots", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {
		.lookup = LOOKUP_FIB_AVX512,
		.sink = SINK_RETURN,
		.burst = 64,
		.flows = 1000000,
		.slots = 1 << 20,
		.hops = 48,
		.prefetch = 4,
		.stored = 65536,
		.working = 4096,
		.data_size = 2048,
		.pool = "ring_mp_mc",
	};
	int letter;

	while ((letter = getopt_long(count, arguments, "", names, NULL)) != -1) {
		switch (letter) {
		case 'r': options.routes = optarg; break;
		case 'c': options.capture = optarg; break;
		case 'l': options.lookup = choice(optarg, lookups, RTE_DIM(lookups), usage); break;
		case 's': options.sink = choice(optarg, sinks, RTE_DIM(sinks), usage); break;
		case 'b': options.burst = number(optarg, 1, LARGEST_BURST); break;
		case 'h': options.hops = number(optarg, 1, LARGEST_HOPS - 2); break;
		case 'p': options.prefetch = number(optarg, 0, LARGEST_BURST); break;
		case 't': options.stored = number(optarg, 1, 1 << 24); break;
		case 'w': options.working = number(optarg, 2048, 1 << 24); break;
		case 'o': options.data_size = number(optarg, 64, 60000); break;
		case 'k': options.pool = optarg; break;
		case 'f': options.flows_of = optarg; break;
		case 'n': options.flows = number(optarg, 1, 1 << 26); break;
		case 'm': options.slots = number(optarg, RTE_HASH_LOOKUP_BULK_MAX, 1 << 27); break;
		default: fail("unknown option\n%s", usage);
		}
	}
	bool by_flow = options.lookup == LOOKUP_EM || options.lookup == LOOKUP_EM_DATA;

	if ((by_flow ? options.flows_of : options.routes) == NULL || optind != count)
		fail("routes or flows are missing, or there is an argument too many\n%s", usage);
	return options;
}

int main(int count, char **arguments)
{
	struct options options;
	struct router router = {0};
	struct frames frames = {0};

	start_dpdk(&count, &arguments);
	options = parse(count, arguments);
	build_router(&router, &options);
	start_ports(&options, &frames);
	serve(work, NULL, NULL, &(struct job){&router, &options, &frames});
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}

/*
 * The work of a VXLAN tunnel end (RFC 7348) as one writes it with DPDK: the peer of `warmlane bench vxlan` and `vxlan-decapsulate`.
 *
 * Both ways the stations' addresses are looked up and learned in a rte_hash, whose data is the station's number. Encapsulating puts
 * Ethernet, IPv4, UDP and VXLAN in front, with a source port by the flow inside and its traffic class; decapsulating checks all of them,
 * and the IPv4 header inside. The frames are those of the bench: made by the same formula, and copied into buffers. They are in the
 * first-level cache then, so that there is nothing to prefetch but the table, which rte_hash does by itself.
 */

#define ALLOW_EXPERIMENTAL_API
#include <rte_bitops.h>
#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>
#include <rte_udp.h>
#include <rte_vxlan.h>

#include "serve.h"

#define BURST 64
#define BURSTS 64
/* Stations behind the tunnel ends, tunnel ends, and stations here. A frame for each pair of stations. */
#define STATIONS 256
#define REMOTES 16
#define HOSTS 16
#define FRAMES (STATIONS * HOSTS)
#define LENGTH 60
#define IDENTIFIER 0x123456
#define PORT 4789
/* Places of stations: tunnel ends have their number. */
#define ACCESS REMOTES
#define NOWHERE (REMOTES + 1)
#define DISTANCE 128
/* Seconds after which a station is forgotten that was not seen. */
#define AGE 1000000
/* Congestion experienced (RFC 3168 section 5). */
#define CONGESTION 3

static const char usage[] = "vxlan [EAL options] -- --way encapsulate|decapsulate";

enum way { ENCAPSULATE, DECAPSULATE };

/* FNV-1a of all frames, each followed by what it became, without source ports of tunnels, which are everyone's own choice. What `warmlane
 * bench` makes of them has the same: a test of its own sees to it. */
static const uint64_t hashes[] = {
	[ENCAPSULATE] = 0x4a962ab36a153a15,
	[DECAPSULATE] = 0xe6542b1c9f561ba5,
};

struct around {
	struct rte_ether_hdr ethernet;
	struct rte_ipv4_hdr ip;
	struct rte_udp_hdr udp;
	struct rte_vxlan_hdr vxlan;
} __attribute__((packed, aligned(2)));

struct inside {
	struct rte_ether_hdr ethernet;
	struct rte_ipv4_hdr ip;
	struct rte_udp_hdr udp;
} __attribute__((packed, aligned(2)));

struct station {
	uint16_t place;
	uint64_t seen;
};

struct job {
	enum way way;
	struct rte_mempool *pool;
	struct rte_hash *table;
	struct station stations[STATIONS + HOSTS];
	struct around headers[REMOTES];
	/* Sums of the IPv4 headers without length and class. */
	uint32_t sums[REMOTES];
	rte_be32_t remotes[REMOTES];
	rte_be32_t local;
	struct rte_ether_addr own;
	uint64_t age;
	uint16_t length;
	unsigned int next;
	uint8_t frames[FRAMES][DISTANCE] __rte_cache_aligned;
};

static inline uint64_t key_of(const struct rte_ether_addr *address)
{
	uint64_t key = 0;

	memcpy(&key, address, sizeof(*address));
	return key;
}

/* Faster than rte_hash's own way with keys of 8 bytes, which is memcmp. */
static int differ(const void *one, const void *other, size_t length)
{
	(void)length;
	return *(const uint64_t *)one != *(const uint64_t *)other;
}

static inline unsigned int take_frames(struct job *job, struct rte_mbuf **packets)
{
	if (rte_pktmbuf_alloc_bulk(job->pool, packets, BURST) != 0)
		return 0;
	for (unsigned int i = 0; i < BURST; i++) {
		rte_memcpy(rte_pktmbuf_mtod(packets[i], void *), job->frames[job->next], job->length);
		packets[i]->data_len = job->length;
		packets[i]->pkt_len = job->length;
		job->next = (job->next + 1) % FRAMES;
	}
	return BURST;
}

/* Where the senders and the receivers of a burst of frames are. */
static inline void look_up(struct job *job, struct rte_mbuf **packets, unsigned int count, uint64_t *sources, uint64_t *destinations,
			   uint64_t *known_sources, uint64_t *known_destinations)
{
	uint64_t keys[2][BURST];
	const void *places[2][BURST];
	hash_sig_t signatures[2][BURST];
	void *data[2][BURST];

	for (unsigned int i = 0; i < count; i++) {
		const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(packets[i], const struct rte_ether_hdr *);

		keys[0][i] = key_of(&ethernet->src_addr);
		keys[1][i] = key_of(&ethernet->dst_addr);
		places[0][i] = &keys[0][i];
		places[1][i] = &keys[1][i];
		signatures[0][i] = rte_hash_crc_8byte(keys[0][i], 0);
		signatures[1][i] = rte_hash_crc_8byte(keys[1][i], 0);
	}
	/* With hashes of our own, which are inlined. */
	rte_hash_lookup_with_hash_bulk_data(job->table, places[0], signatures[0], count, known_sources, data[0]);
	rte_hash_lookup_with_hash_bulk_data(job->table, places[1], signatures[1], count, known_destinations, data[1]);
	for (unsigned int i = 0; i < count; i++) {
		sources[i] = (uintptr_t)data[0][i];
		destinations[i] = (uintptr_t)data[1][i];
	}
}

/* Not of those that are to be dropped: from no station, for the bridge itself (IEEE 802.1D table 7-10), or encapsulated here before. */
static inline bool is_bridged(const struct job *job, const struct rte_mbuf *packet)
{
	const struct inside *inside = rte_pktmbuf_mtod(packet, const struct inside *);

	return rte_is_valid_assigned_ether_addr(&inside->ethernet.src_addr) &&
	       (key_of(&inside->ethernet.dst_addr) & 0xf0ffffffffff) != 0x0000c28001 &&
	       !(inside->ethernet.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && inside->ip.src_addr == job->local);
}

/* The sender is at this place. Stations that were never seen before would be added here; in this traffic none are. */
static inline bool learn(struct job *job, uint64_t known, unsigned int at, uint64_t station, uint16_t place, uint64_t now)
{
	if ((known >> at & 1) == 0)
		return false;
	job->stations[station].place = place;
	job->stations[station].seen = now;
	return true;
}

/* Where a station is; no place if that is unknown, or was long ago. */
static inline uint16_t find(const struct job *job, uint64_t known, unsigned int at, uint64_t number, uint64_t now)
{
	const struct station *station = &job->stations[number];

	if ((known >> at & 1) == 0)
		return NOWHERE;
	return now - station->seen > job->age ? NOWHERE : station->place;
}

/* ---- Towards the tunnel ends ---- */

static inline bool encapsulate(const struct job *job, struct rte_mbuf *packet, uint16_t place)
{
	const struct inside *inside = rte_pktmbuf_mtod(packet, const struct inside *);
	uint16_t length = packet->pkt_len, class = 0;
	uint32_t hash, sum;
	struct around *around;

	if (place >= REMOTES || length > 1450 + sizeof(inside->ethernet))
		return false;
	if (inside->ethernet.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)) {
		class = inside->ip.type_of_service;
		hash = rte_hash_crc(&inside->ip.src_addr, 12, inside->ip.next_proto_id);
	} else {
		hash = rte_hash_crc(&inside->ethernet, 12, 0);
	}
	around = (struct around *)rte_pktmbuf_prepend(packet, sizeof(*around));
	if (around == NULL)
		return false;
	*around = job->headers[place];
	length += sizeof(around->udp) + sizeof(around->vxlan);
	around->udp.src_port = 0xc0 | (hash & 0xff3f);
	around->udp.dgram_len = rte_cpu_to_be_16(length);
	length += sizeof(around->ip);
	around->ip.total_length = rte_cpu_to_be_16(length);
	around->ip.type_of_service = class;
	sum = job->sums[place] + around->ip.total_length + rte_cpu_to_be_16(class);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	around->ip.hdr_checksum = ~sum;
	return true;
}

static inline unsigned int send_burst(struct job *job, struct rte_mbuf **packets, unsigned int count, uint64_t now)
{
	uint64_t sources[BURST], destinations[BURST], known[2];
	unsigned int sent = 0;

	look_up(job, packets, count, sources, destinations, &known[0], &known[1]);
	for (unsigned int i = 0; i < count; i++)
		sent += is_bridged(job, packets[i]) && learn(job, known[0], i, sources[i], ACCESS, now) &&
			encapsulate(job, packets[i], find(job, known[1], i, destinations[i], now));
	return sent;
}

/* ---- From them ---- */

/* The number of the tunnel end that a good packet is from, without what was around it; REMOTES of any other. */
static inline unsigned int decapsulate(const struct job *job, struct rte_mbuf *packet)
{
	struct around *around = rte_pktmbuf_mtod(packet, struct around *);
	struct inside *inside = (struct inside *)(around + 1);
	uint16_t total = rte_be_to_cpu_16(around->ip.total_length), length = rte_be_to_cpu_16(around->udp.dgram_len);
	uint8_t outer = around->ip.type_of_service & 3;
	unsigned int remote;
	uint32_t found = 0;
	uint16_t available;

	if (packet->data_len < sizeof(*around) + sizeof(*inside) || !rte_is_same_ether_addr(&around->ethernet.dst_addr, &job->own) ||
	    around->ethernet.ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) || around->ip.version_ihl != RTE_IPV4_VHL_DEF ||
	    (around->ip.fragment_offset & rte_cpu_to_be_16(0x3fff)) != 0 || around->ip.next_proto_id != IPPROTO_UDP ||
	    around->ip.dst_addr != job->local || rte_ipv4_cksum(&around->ip) != 0 ||
	    total > packet->pkt_len - sizeof(around->ethernet) || around->udp.dst_port != rte_cpu_to_be_16(PORT) ||
	    length + sizeof(around->ip) > total ||
	    length < sizeof(around->udp) + sizeof(around->vxlan) + sizeof(struct rte_ether_hdr))
		return REMOTES;
	/* A checksum would be checked here; these packets have none. */
	if (around->udp.dgram_cksum != 0 && rte_ipv4_udptcp_cksum_verify(&around->ip, &around->udp) != 0)
		return REMOTES;
	if ((around->vxlan.vx_flags & rte_cpu_to_be_32(0x08000000)) == 0 || rte_be_to_cpu_32(around->vxlan.vx_vni) >> 8 != IDENTIFIER)
		return REMOTES;
	/* Without a branch for each, so that compilers may compare several at once. */
	for (unsigned int i = 0; i < REMOTES; i++)
		found |= (uint32_t)(job->remotes[i] == around->ip.src_addr) << i;
	if (found == 0)
		return REMOTES;
	remote = rte_bsf32(found);
	available = length - sizeof(around->udp) - sizeof(around->vxlan);
	if (rte_pktmbuf_adj(packet, sizeof(*around)) == NULL)
		return REMOTES;
	if (available < packet->pkt_len)
		rte_pktmbuf_trim(packet, packet->pkt_len - available);
	if (inside->ethernet.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN))
		return REMOTES;
	if (inside->ethernet.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)) {
		uint8_t inner = inside->ip.type_of_service & 3;
		uint16_t ihl = rte_ipv4_hdr_len(&inside->ip), whole = rte_be_to_cpu_16(inside->ip.total_length);

		if (inside->ip.version_ihl >> 4 != 4 || ihl < sizeof(inside->ip) || whole < ihl ||
		    whole > packet->pkt_len - sizeof(inside->ethernet) || rte_ipv4_cksum(&inside->ip) != 0)
			return REMOTES;
		/* RFC 6040 section 4.2. What changes the header belongs to a slow path that this traffic doesn't take. */
		if (outer == CONGESTION && inner != CONGESTION)
			return REMOTES;
	}
	return remote;
}

static inline unsigned int receive_burst(struct job *job, struct rte_mbuf **packets, unsigned int count, uint64_t now)
{
	struct rte_mbuf *good[BURST];
	uint64_t sources[BURST], destinations[BURST], known[2];
	uint16_t remotes[BURST];
	unsigned int received = 0, sent = 0;

	for (unsigned int i = 0; i < count; i++) {
		unsigned int remote = decapsulate(job, packets[i]);

		if (remote < REMOTES) {
			remotes[received] = remote;
			good[received++] = packets[i];
		}
	}
	if (received == 0)
		return 0;
	look_up(job, good, received, sources, destinations, &known[0], &known[1]);
	for (unsigned int i = 0; i < received; i++)
		sent += is_bridged(job, good[i]) && learn(job, known[0], i, sources[i], remotes[i], now) &&
			find(job, known[1], i, destinations[i], now) == ACCESS &&
			good[i]->pkt_len <= 1500 + sizeof(struct rte_ether_hdr);
	return sent;
}

static struct round work(void *context)
{
	struct job *job = context;
	struct round round = {0};

	for (unsigned int burst = 0; burst < BURSTS; burst++) {
		struct rte_mbuf *packets[BURST];
		unsigned int count = take_frames(job, packets);
		uint64_t now = rte_rdtsc();

		if (count == 0)
			break;
		round.packets += count;
		round.forwarded += job->way == ENCAPSULATE ? send_burst(job, packets, count, now) : receive_burst(job, packets, count, now);
		/* What drivers do that were promised RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE. */
		rte_mempool_put_bulk(job->pool, (void **)packets, count);
	}
	return round;
}

/* ---- Before the first round ---- */

static struct rte_ether_addr address_of(bool is_remote, unsigned int number)
{
	return (struct rte_ether_addr){{2, 0, 0, is_remote, 0, number}};
}

static void write_inside(struct inside *inside, bool from_remote, unsigned int number)
{
	unsigned int station = number % STATIONS, host = number / STATIONS;
	struct rte_ether_addr far = address_of(true, station), near = address_of(false, host);
	rte_be32_t there = rte_cpu_to_be_32(0x0a010000 | station), here = rte_cpu_to_be_32(0x0a000000 | host);

	memset(inside, 0, LENGTH);
	inside->ethernet.dst_addr = from_remote ? near : far;
	inside->ethernet.src_addr = from_remote ? far : near;
	inside->ethernet.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	inside->ip = (struct rte_ipv4_hdr){
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16(LENGTH - sizeof(inside->ethernet)),
		.time_to_live = 64,
		.next_proto_id = IPPROTO_UDP,
		.src_addr = from_remote ? there : here,
		.dst_addr = from_remote ? here : there,
	};
	inside->ip.hdr_checksum = rte_ipv4_cksum(&inside->ip);
	inside->udp.src_port = rte_cpu_to_be_16(1024 + number);
	inside->udp.dst_port = rte_cpu_to_be_16(53);
	inside->udp.dgram_len = rte_cpu_to_be_16(LENGTH - sizeof(inside->ethernet) - sizeof(inside->ip));
	inside->udp.dgram_cksum = rte_ipv4_udptcp_cksum(&inside->ip, &inside->udp);
}

static void write_around(struct job *job, unsigned int remote)
{
	struct around *around = &job->headers[remote];

	*around = (struct around){
		.ethernet = {.dst_addr = job->own, .src_addr = job->own, .ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)},
		.ip = {.version_ihl = RTE_IPV4_VHL_DEF, .fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG), .time_to_live = 64,
		       .next_proto_id = IPPROTO_UDP, .src_addr = job->local, .dst_addr = job->remotes[remote]},
		.udp = {.dst_port = rte_cpu_to_be_16(PORT)},
		.vxlan = {.vx_flags = rte_cpu_to_be_32(0x08000000), .vx_vni = rte_cpu_to_be_32(IDENTIFIER << 8)},
	};
	job->sums[remote] = rte_raw_cksum(&around->ip, sizeof(around->ip));
}

static void write_frames(struct job *job)
{
	for (unsigned int number = 0; number < FRAMES; number++) {
		unsigned int remote = number % STATIONS % REMOTES;
		struct around around = job->headers[remote];
		uint8_t *frame = job->frames[number];

		if (job->way == ENCAPSULATE) {
			write_inside((struct inside *)frame, false, number);
			continue;
		}
		around.udp.src_port = rte_cpu_to_be_16(0xc000 + number);
		around.udp.dgram_len = rte_cpu_to_be_16(sizeof(around.udp) + sizeof(around.vxlan) + LENGTH);
		around.ip.total_length = rte_cpu_to_be_16(sizeof(around) - sizeof(around.ethernet) + LENGTH);
		around.ip.src_addr = job->remotes[remote];
		around.ip.dst_addr = job->local;
		around.ip.hdr_checksum = 0;
		around.ip.hdr_checksum = rte_ipv4_cksum(&around.ip);
		memcpy(frame, &around, sizeof(around));
		write_inside((struct inside *)(frame + sizeof(around)), true, number);
	}
}

static void add_stations(struct job *job)
{
	struct rte_hash_parameters parameters = {
		.name = "stations",
		.entries = 16384,
		.key_len = sizeof(uint64_t),
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
	};

	job->table = rte_hash_create(&parameters);
	if (job->table == NULL)
		fail("no table: %s", rte_strerror(rte_errno));
	rte_hash_set_cmp_func(job->table, differ);
	for (unsigned int number = 0; number < STATIONS + HOSTS; number++) {
		bool is_remote = number < STATIONS;
		struct rte_ether_addr address = address_of(is_remote, is_remote ? number : number - STATIONS);
		uint64_t key = key_of(&address);

		job->stations[number] = (struct station){is_remote ? number % REMOTES : ACCESS, rte_rdtsc()};
		if (rte_hash_add_key_with_hash_data(job->table, &key, rte_hash_crc_8byte(key, 0),
						    (void *)(uintptr_t)number) != 0)
			fail("a station finds no place in the table");
	}
}

static uint64_t add_to_hash(uint64_t hash, const uint8_t *bytes, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3;
	return hash;
}

static void check_frames(struct job *job)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (unsigned int number = 0; number < FRAMES; number += BURST) {
		struct rte_mbuf *packets[BURST];
		unsigned int count = take_frames(job, packets);

		if ((job->way == ENCAPSULATE ? send_burst : receive_burst)(job, packets, count, rte_rdtsc()) != BURST)
			fail("not every frame of the burst from number %u on goes through", number);
		for (unsigned int i = 0; i < count; i++) {
			uint8_t *data = rte_pktmbuf_mtod(packets[i], uint8_t *);

			if (job->way == ENCAPSULATE)
				memset(data + offsetof(struct around, udp.src_port), 0, sizeof(rte_be16_t));
			hash = add_to_hash(hash, job->frames[number + i], job->length);
			hash = add_to_hash(hash, data, packets[i]->pkt_len);
		}
		rte_pktmbuf_free_bulk(packets, count);
	}
	if (hash != hashes[job->way])
		fail("frames and what becomes of them have the hash %#018" PRIx64 " and not %#018" PRIx64, hash,
		     hashes[job->way]);
}

int main(int count, char **arguments)
{
	static const char *const ways[] = {"encapsulate", "decapsulate"};
	static const struct option options[] = {{"way", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
	static struct job job = {.own = {{2, 0, 0, 0, 0, 0xee}}};
	int option;

	start_dpdk(&count, &arguments);
	while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
		if (option != 'w')
			fail("%s", usage);
		job.way = choice(optarg, ways, RTE_DIM(ways), usage);
	}
	job.length = LENGTH + (job.way == DECAPSULATE ? sizeof(struct around) : 0);
	job.age = AGE * rte_get_tsc_hz();
	job.local = rte_cpu_to_be_32(0xc0000201);
	for (unsigned int remote = 0; remote < REMOTES; remote++) {
		job.remotes[remote] = rte_cpu_to_be_32(0xc0000202 + remote);
		write_around(&job, remote);
	}
	write_frames(&job);
	add_stations(&job);
	job.pool = rte_pktmbuf_pool_create("packets", 4095, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (job.pool == NULL)
		fail("no pool: %s", rte_strerror(rte_errno));
	check_frames(&job);
	serve(work, NULL, NULL, &job);
	rte_eal_cleanup();
	return 0;
}

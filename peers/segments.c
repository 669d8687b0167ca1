/*
 * DPDK's libraries that cut a packet for a link (rte_gso), and merge what was cut (rte_gro): the peer of `warmlane bench gso` and `gro`.
 *
 * rte_gso leaves the checksums of segments to a card, and sends their payload from the packet's own buffers. Where no card does it, software
 * completes them: so it is done here. Packets have the same bytes in front as those of the bench.
 */

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_gro.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_tcp.h>

#include "serve.h"

#define SEGMENTS 16
#define PAYLOAD 1448
#define FLOWS 4
#define BURST (SEGMENTS * FLOWS)
#define TIMES 16

static const char usage[] = "segments [EAL options] -- --way cut|merge";

enum way { CUT, MERGE };

struct headers {
	struct rte_ether_hdr ethernet;
	struct rte_ipv4_hdr ip;
	struct rte_tcp_hdr tcp;
	uint8_t options[12];
} __attribute__((packed, aligned(2)));

struct job {
	enum way way;
	struct rte_mempool *pool, *indirect;
	struct rte_gso_ctx gso;
	struct rte_gro_param gro;
	struct headers whole, parts[BURST];
};

static void write_headers(struct headers *headers, unsigned int flow, unsigned int number, unsigned int payload)
{
	static const uint8_t options[12] = {1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7};

	*headers = (struct headers){
		.ethernet = {.dst_addr = {{2, 0, 0, 0, 0, 1}}, .src_addr = {{2, 0, 0, 0, 0, 2}},
			     .ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)},
		.ip = {.version_ihl = RTE_IPV4_VHL_DEF, .packet_id = rte_cpu_to_be_16(number + 1),
		       .total_length = rte_cpu_to_be_16(sizeof(*headers) - sizeof(headers->ethernet) + payload),
		       .fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG), .time_to_live = 64, .next_proto_id = IPPROTO_TCP,
		       .src_addr = rte_cpu_to_be_32(0xc0000201), .dst_addr = rte_cpu_to_be_32(0xc6336402)},
		.tcp = {.src_port = rte_cpu_to_be_16(1024 + flow), .dst_port = rte_cpu_to_be_16(80),
			.sent_seq = rte_cpu_to_be_32(number * PAYLOAD), .data_off = 0x80, .tcp_flags = RTE_TCP_ACK_FLAG,
			.rx_win = 0xffff},
	};
	memcpy(headers->options, options, sizeof(options));
	headers->ip.hdr_checksum = rte_ipv4_cksum(&headers->ip);
}

static inline void note_headers(struct rte_mbuf *packet)
{
	packet->l2_len = sizeof(struct rte_ether_hdr);
	packet->l3_len = sizeof(struct rte_ipv4_hdr);
	packet->l4_len = sizeof(struct rte_tcp_hdr) + 12;
}

/* ---- Cutting ---- */

/* In buffers that are full. */
static inline struct rte_mbuf *whole_packet(struct job *job)
{
	struct rte_mbuf *parts[SEGMENTS + 1];
	unsigned int left = SEGMENTS * PAYLOAD + sizeof(job->whole);
	unsigned int count = (left + RTE_MBUF_DEFAULT_DATAROOM - 1) / RTE_MBUF_DEFAULT_DATAROOM;

	if (rte_pktmbuf_alloc_bulk(job->pool, parts, count) != 0)
		return NULL;
	rte_memcpy(rte_pktmbuf_mtod(parts[0], void *), &job->whole, sizeof(job->whole));
	parts[0]->pkt_len = left;
	parts[0]->nb_segs = count;
	for (unsigned int i = 0; i < count; i++) {
		parts[i]->data_len = RTE_MIN(left, (unsigned int)RTE_MBUF_DEFAULT_DATAROOM);
		left -= parts[i]->data_len;
		parts[i]->next = i + 1 < count ? parts[i + 1] : NULL;
	}
	note_headers(parts[0]);
	parts[0]->ol_flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4;
	return parts[0];
}

static inline void complete(struct rte_mbuf *segment)
{
	struct headers *headers = rte_pktmbuf_mtod(segment, struct headers *);

	headers->ip.hdr_checksum = 0;
	headers->ip.hdr_checksum = rte_ipv4_cksum(&headers->ip);
	headers->tcp.cksum = 0;
	headers->tcp.cksum = rte_ipv4_udptcp_cksum_mbuf(segment, &headers->ip, offsetof(struct headers, tcp));
}

static inline int cut(struct job *job, struct rte_mbuf **segments)
{
	struct rte_mbuf *packet = whole_packet(job);
	int count;

	if (packet == NULL)
		return 0;
	count = rte_gso_segment(packet, &job->gso, segments, SEGMENTS + 1);
	rte_pktmbuf_free(packet);
	for (int i = 0; i < count; i++)
		complete(segments[i]);
	return count;
}

static struct round work_cut(void *context)
{
	struct round round = {0};

	for (unsigned int time = 0; time < TIMES; time++) {
		struct rte_mbuf *segments[SEGMENTS + 1];
		int count = cut(context, segments);

		if (count != SEGMENTS)
			break;
		rte_pktmbuf_free_bulk(segments, count);
		round.packets += count;
	}
	round.forwarded = round.packets;
	return round;
}

/* ---- Merging ---- */

static inline unsigned int merge(struct job *job, struct rte_mbuf **packets)
{
	if (rte_pktmbuf_alloc_bulk(job->pool, packets, BURST) != 0)
		return 0;
	for (unsigned int i = 0; i < BURST; i++) {
		struct rte_mbuf *packet = packets[i];

		rte_memcpy(rte_pktmbuf_mtod(packet, void *), &job->parts[i], sizeof(job->parts[i]));
		packet->data_len = sizeof(struct headers) + PAYLOAD;
		packet->pkt_len = packet->data_len;
		/* As a card says it. */
		note_headers(packet);
		packet->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_TCP;
	}
	return rte_gro_reassemble_burst(packets, BURST, &job->gro);
}

static struct round work_merge(void *context)
{
	struct round round = {0};

	for (unsigned int time = 0; time < TIMES; time++) {
		struct rte_mbuf *packets[BURST];
		unsigned int count = merge(context, packets);

		if (count != FLOWS)
			break;
		rte_pktmbuf_free_bulk(packets, count);
		round.packets += BURST;
	}
	round.forwarded = round.packets;
	return round;
}

/* ---- Before the first round ---- */

static void check(struct job *job)
{
	struct rte_mbuf *packets[BURST];

	if (job->way == CUT) {
		if (cut(job, packets) != SEGMENTS)
			fail("the packet is not cut into %d segments", SEGMENTS);
		for (unsigned int i = 0; i < SEGMENTS; i++) {
			struct headers *headers = rte_pktmbuf_mtod(packets[i], struct headers *);

			if (rte_ipv4_cksum(&headers->ip) != 0 || rte_pktmbuf_pkt_len(packets[i]) != sizeof(*headers) + PAYLOAD ||
			    rte_ipv4_udptcp_cksum_mbuf_verify(packets[i], &headers->ip, offsetof(struct headers, tcp)) != 0)
				fail("segment %u is wrong", i);
		}
		rte_pktmbuf_free_bulk(packets, SEGMENTS);
	} else {
		if (merge(job, packets) != FLOWS)
			fail("segments are not merged to %d packets", FLOWS);
		for (unsigned int i = 0; i < FLOWS; i++)
			if (rte_pktmbuf_pkt_len(packets[i]) != sizeof(struct headers) + SEGMENTS * PAYLOAD)
				fail("packet %u has %u bytes", i, rte_pktmbuf_pkt_len(packets[i]));
		rte_pktmbuf_free_bulk(packets, FLOWS);
	}
}

int main(int count, char **arguments)
{
	static const char *const ways[] = {"cut", "merge"};
	static const struct option options[] = {{"way", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
	static struct job job;
	int option;

	start_dpdk(&count, &arguments);
	while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
		if (option != 'w')
			fail("%s", usage);
		job.way = choice(optarg, ways, RTE_DIM(ways), usage);
	}
	job.pool = rte_pktmbuf_pool_create("packets", 4095, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	job.indirect = rte_pktmbuf_pool_create("payloads", 4095, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, 0, SOCKET_ID_ANY);
	if (job.pool == NULL || job.indirect == NULL)
		fail("no pool: %s", rte_strerror(rte_errno));
	job.gso = (struct rte_gso_ctx){
		.direct_pool = job.pool,
		.indirect_pool = job.indirect,
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO,
		.gso_size = sizeof(struct headers) + PAYLOAD,
	};
	job.gro = (struct rte_gro_param){.gro_types = RTE_GRO_TCP_IPV4, .max_flow_num = FLOWS, .max_item_per_flow = BURST};
	write_headers(&job.whole, 0, 0, SEGMENTS * PAYLOAD);
	for (unsigned int i = 0; i < BURST; i++)
		write_headers(&job.parts[i], i % FLOWS, i / FLOWS, PAYLOAD);
	check(&job);
	serve(job.way == CUT ? work_cut : work_merge, NULL, NULL, &job);
	rte_eal_cleanup();
	return 0;
}

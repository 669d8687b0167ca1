/*
 * Buffers as one handles them with DPDK: the peer of `warmlane bench pool-...` and `tx-null`.
 *
 * One lane: takes a burst of packets ready to use and frees it. Two lanes: the first takes, writes and hands over by a ring,
 * the second reads and frees. Transmit: takes, writes the headers of a 64-byte frame as testpmd's txonly does, and
 * transmits to a net_null port, whose driver frees, or frees them in bulk by itself. With --multi-flow, source addresses differ
 * as with testpmd's --txonly-multi-flow; with --signed, packets are what `warmlane gen` makes.
 */

#include <getopt.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memcpy.h>
#include <rte_pause.h>
#include <rte_prefetch.h>
#include <rte_ring.h>
#include <rte_udp.h>

#include "pool_options.h"
#include "signer.h"

#define LARGEST_BURST 256
#define LARGEST_FRAME 2048
#define LINE 64
/* Packets between two looks at the clock: well below a millisecond of work. */
#define PACKETS_PER_CLOCK 2048
/* Frame lengths that are repeated. */
#define LENGTHS 1024
#define DESCRIPTORS 512

enum mode { MODE_ONE_LANE, MODE_TWO_LANES, MODE_TRANSMIT };
static const char *const modes[] = {"one-lane", "two-lanes", "transmit"};

enum sink { SINK_PORT, SINK_FREE, SINK_RETURN };
static const char *const sinks[] = {"port", "free", "return"};

static const char *const usage =
	"usage: pool EAL-OPTIONS -- [--mode one-lane|two-lanes|transmit] [--kind ring_mp_mc|stack|lf_stack] [--cache N]\n"
	"            [--buffers N] [--burst N] [--bytes N] [--ring N] [--held N] [--ahead N]\n"
	"            [--sink port|free|return] [--multi-flow 0|1] [--signed 0|1]";

struct headers {
	struct rte_ether_hdr ethernet;
	struct rte_ipv4_hdr ipv4;
	struct rte_udp_hdr udp;
};

_Static_assert(sizeof(struct headers) == 42, "headers lie one behind the other");

struct state {
	struct rte_mempool *pool;
	struct rte_ring *ring;
	unsigned int burst;
	unsigned int held;
	unsigned int bytes;
	/* With two lanes: how many packets ahead a lane asks for the lines of one; 0 if it doesn't. */
	unsigned int ahead;
	/* Where transmitted packets end: a port, rte_pktmbuf_free_bulk, or rte_mempool_put_bulk as a driver does with FAST_FREE. */
	enum sink sink;
	bool multi_flow;
	bool is_signed;
	uint8_t flow;
	struct signer signer;
	struct headers headers;
	uint8_t frame[LARGEST_FRAME] __rte_cache_aligned;
	/* Written by the second lane alone. */
	uint64_t sum __rte_cache_aligned;
};

static struct round one_lane(void *context)
{
	struct state *state = context;
	struct rte_mbuf *packets[LARGEST_BURST];
	struct round round = {0};

	while (round.packets < PACKETS_PER_CLOCK) {
		if (rte_pktmbuf_alloc_bulk(state->pool, packets, state->burst) != 0)
			fail("the pool is empty");
		__asm__ volatile("" : : "r"(packets) : "memory");
		rte_pktmbuf_free_bulk(packets, state->burst);
		round.packets += state->burst;
	}
	round.forwarded = round.packets;
	return round;
}

/* Both lines of a packet's header, and the first of its data, whose address follows from the header's. */
static inline void ask_to_read(const struct state *state, struct rte_mbuf *packet)
{
	rte_mbuf_prefetch_part1(packet);
	rte_mbuf_prefetch_part2(packet);
	rte_prefetch0(rte_mbuf_buf_addr(packet, state->pool) + RTE_PKTMBUF_HEADROOM);
}

/* The same for who writes them: rte_prefetch0_write is experimental in DPDK 22.11. */
static inline void ask_to_write(const struct state *state, struct rte_mbuf *packet)
{
	__builtin_prefetch(packet, 1, 3);
	__builtin_prefetch((char *)packet + LINE, 1, 3);
	__builtin_prefetch(rte_mbuf_buf_addr(packet, state->pool) + RTE_PKTMBUF_HEADROOM, 1, 3);
}

/* As rte_pktmbuf_alloc_bulk, which resets one packet after the other, each when its lines have come. */
static inline int allocate(struct state *state, struct rte_mbuf **packets)
{
	unsigned int asked = RTE_MIN(state->ahead, state->burst);

	if (state->ahead == 0)
		return rte_pktmbuf_alloc_bulk(state->pool, packets, state->burst);
	if (rte_mempool_get_bulk(state->pool, (void **)packets, state->burst) != 0)
		return -1;
	for (unsigned int i = 0; i < asked; i++)
		ask_to_write(state, packets[i]);
	for (unsigned int i = 0; i < state->burst; i++) {
		if (asked < state->burst)
			ask_to_write(state, packets[asked++]);
		rte_pktmbuf_reset(packets[i]);
	}
	return 0;
}

static struct round first_lane(void *context)
{
	struct state *state = context;
	struct rte_mbuf *packets[LARGEST_BURST];
	struct round round = {0};

	for (unsigned int tries = 0; tries < PACKETS_PER_CLOCK / state->burst; tries++) {
		unsigned int sent = 0;

		if (allocate(state, packets) != 0) {
			/* The second lane has them. */
			rte_pause();
			continue;
		}
		for (unsigned int i = 0; i < state->burst; i++) {
			packets[i]->data_len = state->bytes;
			packets[i]->pkt_len = state->bytes;
			rte_memcpy(rte_pktmbuf_mtod(packets[i], void *), state->frame, state->bytes);
		}
		while ((sent += rte_ring_sp_enqueue_burst(state->ring, (void **)packets + sent, state->burst - sent,
							  NULL)) < state->burst)
			rte_pause();
		round.packets += state->burst;
	}
	round.forwarded = round.packets;
	return round;
}

static void second_lane(void *context)
{
	struct state *state = context;
	struct rte_mbuf *packets[LARGEST_BURST];
	unsigned int count = 0, asked;
	uint64_t sum = 0;

	if (state->held == 0 || rte_ring_count(state->ring) >= state->held)
		count = rte_ring_sc_dequeue_burst(state->ring, (void **)packets, state->burst, NULL);
	if (count == 0) {
		rte_pause();
		return;
	}
	asked = RTE_MIN(state->ahead, count);
	for (unsigned int i = 0; i < asked; i++)
		ask_to_read(state, packets[i]);
	for (unsigned int i = 0; i < count; i++) {
		if (state->ahead != 0 && asked < count)
			ask_to_read(state, packets[asked++]);
		const uint8_t *data = rte_pktmbuf_mtod(packets[i], const uint8_t *);

		for (unsigned int offset = 0; offset < packets[i]->data_len; offset += LINE)
			sum += *(const volatile uint64_t *)(data + offset);
	}
	rte_pktmbuf_free_bulk(packets, count);
	state->sum += sum;
}

static inline void dispose(struct state *state, struct rte_mbuf **packets)
{
	unsigned int sent = 0;

	switch (state->sink) {
	case SINK_PORT:
		while ((sent += rte_eth_tx_burst(0, 0, packets + sent, state->burst - sent)) < state->burst)
			;
		break;
	case SINK_FREE:
		rte_pktmbuf_free_bulk(packets, state->burst);
		break;
	case SINK_RETURN:
		rte_mempool_put_bulk(state->pool, (void **)packets, state->burst);
		break;
	}
}

/* As testpmd's txonly.c prepares a packet of one segment. */
static struct round transmit(void *context)
{
	struct state *state = context;
	struct rte_mbuf *packets[LARGEST_BURST];
	struct round round = {0};

	while (round.packets < PACKETS_PER_CLOCK) {
		if (rte_mempool_get_bulk(state->pool, (void **)packets, state->burst) != 0)
			fail("the pool is empty");
		for (unsigned int i = 0; i < state->burst; i++) {
			struct rte_mbuf *packet = packets[i];

			rte_pktmbuf_reset_headroom(packet);
			packet->data_len = state->bytes;
			packet->ol_flags = 0;
			packet->vlan_tci = 0;
			packet->vlan_tci_outer = 0;
			packet->l2_len = sizeof(struct rte_ether_hdr);
			packet->l3_len = sizeof(struct rte_ipv4_hdr);
			if (!state->is_signed)
				rte_memcpy(rte_pktmbuf_mtod(packet, void *), &state->headers, sizeof(state->headers));
			if (state->multi_flow)
				rte_pktmbuf_mtod(packet, struct headers *)->ipv4.src_addr =
					rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 0) | state->flow++);
			packet->nb_segs = 1;
			packet->pkt_len = state->bytes;
			packet->next = NULL;
		}
		if (state->is_signed)
			sign(&state->signer, packets, state->burst);
		dispose(state, packets);
		round.packets += state->burst;
	}
	round.forwarded = round.packets;
	return round;
}

static void open_port(void)
{
	struct rte_eth_conf configuration = {0};

	if (rte_eth_dev_count_avail() != 1)
		fail("transmitting needs one port: --vdev=net_null0");
	if (rte_eth_dev_configure(0, 0, 1, &configuration) != 0 ||
	    rte_eth_tx_queue_setup(0, 0, DESCRIPTORS, rte_socket_id(), NULL) != 0 || rte_eth_dev_start(0) != 0)
		fail("the port can't be started");
}

static void begin(void *context)
{
	begin_second_lane(context);
}

static void end(void *context)
{
	end_second_lane(context);
}

struct lanes {
	/* First, so that a pointer to this is one to the second lane. */
	struct second_lane second;
	struct state *state;
};

static struct round first_of_two(void *context)
{
	struct lanes *lanes = context;

	return first_lane(lanes->state);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		POOL_OPTIONS,
		{"mode", required_argument, NULL, 'm'},
		{"burst", required_argument, NULL, 'n'},   {"bytes", required_argument, NULL, 'l'},
		{"ring", required_argument, NULL, 'r'},	   {"held", required_argument, NULL, 'h'},
		{"ahead", required_argument, NULL, 'a'},   {"sink", required_argument, NULL, 's'},
		{"multi-flow", required_argument, NULL, 'f'}, {"signed", required_argument, NULL, 'g'},
		{NULL, 0, NULL, 0},
	};
	static struct state state = {.burst = 32, .bytes = 1520};
	static struct lanes lanes;
	struct pool_options pool = {.kind = "ring_mp_mc", .cache = 256, .buffers = 65535, .most_buffers = 1 << 24};
	unsigned int slots = 256;
	enum mode mode = MODE_TWO_LANES;
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'm':
			mode = choice(optarg, modes, RTE_DIM(modes), usage);
			break;
		case 'n':
			state.burst = number(optarg, 1, LARGEST_BURST);
			break;
		case 'l':
			state.bytes = number(optarg, LINE, LARGEST_FRAME);
			break;
		case 'r':
			slots = number(optarg, 2, 1 << 20);
			break;
		case 'h':
			state.held = number(optarg, 0, 1 << 20);
			break;
		case 'a':
			state.ahead = number(optarg, 0, LARGEST_BURST);
			break;
		case 's':
			state.sink = choice(optarg, sinks, RTE_DIM(sinks), usage);
			break;
		case 'f':
			state.multi_flow = number(optarg, 0, 1);
			break;
		case 'g':
			state.is_signed = number(optarg, 0, 1);
			break;
		default:
			if (!read_pool_option(&pool, option))
				fail("%s", usage);
		}
	}
	state.pool = rte_pktmbuf_pool_create_by_ops("packets", pool.buffers, pool.cache, 0,
						    RTE_PKTMBUF_HEADROOM + LARGEST_FRAME, rte_socket_id(), pool.kind);
	if (state.pool == NULL)
		fail("no pool of kind %s with %u buffers and a cache of %u", pool.kind, pool.buffers, pool.cache);
	memset(state.frame, 0x5a, sizeof(state.frame));
	memset(&state.headers, 0x5a, sizeof(state.headers));
	if (state.is_signed) {
		check_signed(state.pool);
		begin_signing(&state.signer);
		state.bytes = SIGNED_BYTES;
	}
	switch (mode) {
	case MODE_ONE_LANE:
		serve(one_lane, NULL, NULL, &state);
		break;
	case MODE_TRANSMIT:
		if (state.sink == SINK_PORT)
			open_port();
		serve(transmit, NULL, NULL, &state);
		break;
	case MODE_TWO_LANES:
		state.ring = rte_ring_create("handover", slots, rte_socket_id(), RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (state.ring == NULL)
			fail("no ring of %u slots: a power of two is needed", slots);
		lanes = (struct lanes){.second = {.step = second_lane, .context = &state}, .state = &state};
		serve(first_of_two, begin, end, &lanes);
		break;
	}
	return EXIT_SUCCESS;
}

/*
 * Lanes of DPDK that share a CPU: each polls a ring of its own and works for some time on each packet, while the main
 * lane, on another CPU, keeps the rings full. What `warmlane lab share` does with lanes of ours.
 */

#include "serve.h"

#include <sched.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

static const char usage[] =
	"share [DPDK's options, with --lcores MAIN@CPU,(LANES)@CPU] -- [--ring ENTRIES] [--work CYCLES] [--yield]\n"
	"  --yield   a lane that finds nothing leaves its CPU to others";

enum { BURST = 64, MOST_LANES = 8, MOST_CYCLES = 10 * 1000 * 1000 };

struct lane {
	struct rte_ring *ring;
	uint64_t received;
	uint64_t counted; /* by the main lane */
} __rte_cache_aligned;

static struct {
	struct lane lanes[MOST_LANES];
	unsigned int count;
	struct rte_mempool *pool;
	uint64_t work;
	bool yields;
	bool running;
} shared;

static int poll_ring(void *argument)
{
	struct lane *lane = argument;
	struct rte_mbuf *packets[BURST];

	while (__atomic_load_n(&shared.running, __ATOMIC_RELAXED)) {
		unsigned int count = rte_ring_sc_dequeue_burst(lane->ring, (void **)packets, BURST, NULL);

		if (count == 0 && shared.yields)
			sched_yield();
		for (unsigned int i = 0; i < count; i++) {
			uint64_t start = rte_rdtsc();

			while (rte_rdtsc() - start < shared.work)
				rte_pause();
		}
		rte_pktmbuf_free_bulk(packets, count);
		__atomic_store_n(&lane->received, lane->received + count, __ATOMIC_RELAXED);
	}
	return 0;
}

/* Fills each ring once. */
static struct round work(void *context)
{
	struct round round = {0};

	(void)context;
	for (unsigned int i = 0; i < shared.count; i++) {
		struct lane *lane = &shared.lanes[i];
		struct rte_mbuf *packets[BURST];
		uint64_t received;

		while (rte_ring_free_count(lane->ring) >= BURST &&
		       rte_pktmbuf_alloc_bulk(shared.pool, packets, BURST) == 0)
			rte_ring_sp_enqueue_bulk(lane->ring, (void **)packets, BURST, NULL);
		received = __atomic_load_n(&lane->received, __ATOMIC_RELAXED);
		round.packets += received - lane->counted;
		lane->counted = received;
	}
	round.forwarded = round.packets;
	return round;
}

static void begin(void *context)
{
	unsigned int core, i = 0;

	(void)context;
	__atomic_store_n(&shared.running, true, __ATOMIC_RELAXED);
	RTE_LCORE_FOREACH_WORKER (core)
		rte_eal_remote_launch(poll_ring, &shared.lanes[i++], core);
}

static void end(void *context)
{
	struct rte_mbuf *packet;

	(void)context;
	__atomic_store_n(&shared.running, false, __ATOMIC_RELAXED);
	rte_eal_mp_wait_lcore();
	for (unsigned int i = 0; i < shared.count; i++) {
		while (rte_ring_sc_dequeue(shared.lanes[i].ring, (void **)&packet) == 0)
			rte_pktmbuf_free(packet);
		shared.lanes[i].counted = shared.lanes[i].received;
	}
}

/*
 * Its ring is the kind that DPDK's guide recommends where threads share CPUs (programmer's guide, "Ring Library",
 * multi-thread with relaxed tail sync): with the usual one a lane that is interrupted while it frees holds up the others.
 */
static struct rte_mempool *make_pool(unsigned int packets)
{
	return rte_pktmbuf_pool_create_by_ops("share", packets, 256, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY,
					      "ring_mt_rts");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"ring", required_argument, NULL, 'r'},
		{"work", required_argument, NULL, 'w'},
		{"yield", no_argument, NULL, 'y'},
		{NULL, 0, NULL, 0},
	};
	unsigned int ring = 512;
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'r')
			ring = number(optarg, BURST, 1 << 16);
		else if (option == 'w')
			shared.work = number(optarg, 0, MOST_CYCLES);
		else if (option == 'y')
			shared.yields = true;
		else
			fail("%s", usage);
	}
	shared.count = rte_lcore_count() - 1;
	if (shared.count == 0 || shared.count > MOST_LANES)
		fail("from 1 to %d lanes besides the main one\n%s", MOST_LANES, usage);
	/* What is in the lanes' caches comes on top of what is in rings. */
	shared.pool = make_pool(2 * (ring + 512) * shared.count + 1024);
	if (shared.pool == NULL)
		fail("no pool: %s", rte_strerror(rte_errno));
	for (unsigned int i = 0; i < shared.count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "lane%u", i);
		shared.lanes[i].ring =
			rte_ring_create(name, ring, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		if (shared.lanes[i].ring == NULL)
			fail("no ring: %s", rte_strerror(rte_errno));
	}
	serve(work, begin, end, NULL);
	rte_eal_cleanup();
	return 0;
}

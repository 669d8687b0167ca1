/*
 * rte_ring between two lanes or on one: the peer of `warmlane bench ring-spsc` and its kin.
 *
 * The first lane takes bursts of 8-byte elements out, the second puts them in; both touch the first and the last element
 * of each burst, as on our side. With --lanes 1 the first does both in turn.
 */

#define _GNU_SOURCE

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_ring_peek_zc.h>

#include "serve.h"

#define LARGEST_BURST 256
/* Bursts between two looks at the clock or at whether the round is over. */
#define BURSTS_PER_LOOK 64

static const char *const usage = "usage: rings EAL... -- [--sync sp-sc|mp-mc|rts|hts|zero-copy] [--lanes 1|2] [--burst N]"
				 " [--capacity N] [--pauses N] [--crowd THREADS [--seconds N]]";

/* zero-copy: single producer and consumer, in the ring's own memory. */
enum sync { SYNC_SP_SC, SYNC_MP_MC, SYNC_RTS, SYNC_HTS, SYNC_ZERO_COPY };
static const char *const sync_names[] = {"sp-sc", "mp-mc", "rts", "hts", "zero-copy"};
static const unsigned int sync_flags[] = {
	RING_F_SP_ENQ | RING_F_SC_DEQ, 0, RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ, RING_F_MP_HTS_ENQ | RING_F_MC_HTS_DEQ,
	RING_F_SP_ENQ | RING_F_SC_DEQ,
};

struct rings {
	struct rte_ring *ring;
	enum sync sync;
	unsigned int burst;
	unsigned int pauses; /* after a burst that did not go in or come out */
	struct second_lane producer;
};

/* The mode is known to the compiler where it is inlined. */
static inline __attribute__((always_inline)) unsigned int enqueue(struct rte_ring *ring, enum sync sync, uint64_t *values,
								  unsigned int count, uint64_t stamp)
{
	struct rte_ring_zc_data slots;
	uint64_t *first;

	if (sync == SYNC_ZERO_COPY) {
		if (rte_ring_enqueue_zc_bulk_elem_start(ring, sizeof(*values), count, &slots, NULL) == 0)
			return 0;
		first = slots.ptr1;
		for (unsigned int i = 0; i < slots.n1; i++)
			first[i] = stamp;
		first = slots.ptr2;
		for (unsigned int i = 0; i < count - slots.n1; i++)
			first[i] = stamp;
		rte_ring_enqueue_zc_elem_finish(ring, count);
		return count;
	}
	values[0] = stamp;
	values[count - 1] = stamp;
	switch (sync) {
	case SYNC_SP_SC:
		return rte_ring_sp_enqueue_bulk_elem(ring, values, sizeof(*values), count, NULL);
	case SYNC_MP_MC:
		return rte_ring_mp_enqueue_bulk_elem(ring, values, sizeof(*values), count, NULL);
	case SYNC_RTS:
		return rte_ring_mp_rts_enqueue_bulk_elem(ring, values, sizeof(*values), count, NULL);
	default:
		return rte_ring_mp_hts_enqueue_bulk_elem(ring, values, sizeof(*values), count, NULL);
	}
}

static inline __attribute__((always_inline)) unsigned int dequeue(struct rte_ring *ring, enum sync sync, uint64_t *values,
								  unsigned int count, uint64_t *sum)
{
	struct rte_ring_zc_data slots;
	const uint64_t *first;
	unsigned int done;

	switch (sync) {
	case SYNC_ZERO_COPY:
		if (rte_ring_dequeue_zc_bulk_elem_start(ring, sizeof(*values), count, &slots, NULL) == 0)
			return 0;
		first = slots.ptr1;
		for (unsigned int i = 0; i < slots.n1; i++)
			*sum += first[i];
		first = slots.ptr2;
		for (unsigned int i = 0; i < count - slots.n1; i++)
			*sum += first[i];
		rte_ring_dequeue_zc_elem_finish(ring, count);
		return count;
	case SYNC_SP_SC:
		done = rte_ring_sc_dequeue_bulk_elem(ring, values, sizeof(*values), count, NULL);
		break;
	case SYNC_MP_MC:
		done = rte_ring_mc_dequeue_bulk_elem(ring, values, sizeof(*values), count, NULL);
		break;
	case SYNC_RTS:
		done = rte_ring_mc_rts_dequeue_bulk_elem(ring, values, sizeof(*values), count, NULL);
		break;
	default:
		done = rte_ring_mc_hts_dequeue_bulk_elem(ring, values, sizeof(*values), count, NULL);
		break;
	}
	*sum += values[0] + values[count - 1];
	return done;
}

static inline void pause_for(unsigned int pauses)
{
	for (unsigned int i = 0; i < pauses; i++)
		rte_pause();
}

static inline __attribute__((always_inline)) void produce(struct rings *rings, enum sync sync)
{
	uint64_t values[LARGEST_BURST] = {0};

	for (unsigned int i = 0; i < BURSTS_PER_LOOK; i++)
		if (enqueue(rings->ring, sync, values, rings->burst, i) == 0)
			pause_for(rings->pauses);
}

static inline __attribute__((always_inline)) uint64_t consume(struct rings *rings, enum sync sync, bool alone)
{
	uint64_t values[LARGEST_BURST] = {0}, sum = 0, done = 0;

	for (unsigned int i = 0; i < BURSTS_PER_LOOK; i++) {
		unsigned int count;

		if (alone)
			enqueue(rings->ring, sync, values, rings->burst, i);
		count = dequeue(rings->ring, sync, values, rings->burst, &sum);
		if (count == 0)
			pause_for(rings->pauses);
		done += count;
	}
	/* So that the compiler has to look at what came out. */
	asm volatile("" : : "r"(sum));
	return done;
}

static void produce_step(void *context)
{
	struct rings *rings = context;

	switch (rings->sync) {
	case SYNC_SP_SC: produce(rings, SYNC_SP_SC); break;
	case SYNC_MP_MC: produce(rings, SYNC_MP_MC); break;
	case SYNC_RTS: produce(rings, SYNC_RTS); break;
	case SYNC_HTS: produce(rings, SYNC_HTS); break;
	case SYNC_ZERO_COPY: produce(rings, SYNC_ZERO_COPY); break;
	}
}

static inline struct round work(struct rings *rings, bool alone)
{
	uint64_t done = 0;

	switch (rings->sync) {
	case SYNC_SP_SC: done = consume(rings, SYNC_SP_SC, alone); break;
	case SYNC_MP_MC: done = consume(rings, SYNC_MP_MC, alone); break;
	case SYNC_RTS: done = consume(rings, SYNC_RTS, alone); break;
	case SYNC_HTS: done = consume(rings, SYNC_HTS, alone); break;
	case SYNC_ZERO_COPY: done = consume(rings, SYNC_ZERO_COPY, alone); break;
	}
	return (struct round){done, done};
}

static struct round work_alone(void *context)
{
	return work(context, true);
}

static struct round work_with_partner(void *context)
{
	return work(context, false);
}

static void begin(void *context)
{
	begin_second_lane(&((struct rings *)context)->producer);
}

static void end(void *context)
{
	end_second_lane(&((struct rings *)context)->producer);
}

/* ---- More threads than cores ---- */

/* Durations in cycles, eight steps to each factor of two. */
#define STEPS (8 * 62)

struct worker {
	pthread_t thread;
	struct rings *rings;
	unsigned int number;
	uint64_t elements;
	uint64_t counts[STEPS];
};

static volatile bool crowd_stops;

static unsigned int step_of(uint64_t cycles)
{
	unsigned int power;

	if (cycles < 8)
		cycles = 8;
	power = 63 - __builtin_clzll(cycles);
	return RTE_MIN(8 * (power - 3) + (unsigned int)(cycles >> (power - 3) & 7), STEPS - 1U);
}

static inline __attribute__((always_inline)) void crowd_work(struct worker *worker, enum sync sync)
{
	uint64_t values[LARGEST_BURST] = {0}, sum = 0;

	while (!crowd_stops) {
		uint64_t start = rte_rdtsc_precise();
		unsigned int done;

		if (worker->number % 2 == 0)
			done = enqueue(worker->rings->ring, sync, values, worker->rings->burst, 0);
		else
			done = dequeue(worker->rings->ring, sync, values, worker->rings->burst, &sum);
		worker->counts[step_of(rte_rdtsc_precise() - start)]++;
		if (done == 0)
			sched_yield();
		else
			worker->elements += worker->number % 2 * done;
	}
	asm volatile("" : : "r"(sum));
}

static void *crowd_member(void *context)
{
	struct worker *worker = context;

	switch (worker->rings->sync) {
	case SYNC_MP_MC: crowd_work(worker, SYNC_MP_MC); break;
	case SYNC_RTS: crowd_work(worker, SYNC_RTS); break;
	case SYNC_HTS: crowd_work(worker, SYNC_HTS); break;
	default: fail("a crowd needs a ring for several producers and consumers: --sync mp-mc, rts or hts");
	}
	return NULL;
}

static double quantile(const uint64_t *counts, double share)
{
	uint64_t all = 0, left;

	for (unsigned int step = 0; step < STEPS; step++)
		all += counts[step];
	left = all * share + 1;
	for (unsigned int step = 0; step < STEPS; step++) {
		if (left <= counts[step])
			return (8.0 + step % 8) * (1ULL << step / 8);
		left -= counts[step];
	}
	return 0;
}

/* Half of the threads put in, half take out, all on the CPUs of the lanes; prints one JSON object. */
static void crowd(struct rings *rings, unsigned int threads, unsigned int seconds)
{
	struct worker *workers = calloc(threads, sizeof(*workers));
	uint64_t counts[STEPS] = {0}, elements = 0, start;
	unsigned int lcore, cpus = 0, cpu[RTE_MAX_LCORE];

	if (workers == NULL)
		fail("no memory for %u threads", threads);
	RTE_LCORE_FOREACH(lcore)
		cpu[cpus++] = rte_lcore_to_cpu_id(lcore);
	start = rte_rdtsc_precise();
	for (unsigned int i = 0; i < threads; i++) {
		cpu_set_t set;

		workers[i] = (struct worker){.rings = rings, .number = i};
		if (pthread_create(&workers[i].thread, NULL, crowd_member, &workers[i]) != 0)
			fail("cannot start thread %u", i);
		CPU_ZERO(&set);
		CPU_SET(cpu[i / 2 % cpus], &set);
		if (pthread_setaffinity_np(workers[i].thread, sizeof(set), &set) != 0)
			fail("cannot bind thread %u to CPU %u", i, cpu[i / 2 % cpus]);
	}
	sleep(seconds);
	crowd_stops = true;
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		elements += workers[i].elements;
		for (unsigned int step = 0; step < STEPS; step++)
			counts[step] += workers[i].counts[step];
	}
	printf("{\"name\":\"rte-ring-%s-crowd-%u\",\"threads\":%u,\"cycles_per_element\":%.2f,\"median\":%.0f,\"p999\":%.0f}\n",
	       sync_names[rings->sync], threads, threads, (double)(rte_rdtsc_precise() - start) / elements,
	       quantile(counts, 0.5), quantile(counts, 0.999));
	free(workers);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"sync", required_argument, NULL, 's'},	    {"lanes", required_argument, NULL, 'l'},
		{"burst", required_argument, NULL, 'b'},    {"capacity", required_argument, NULL, 'c'},
		{"pauses", required_argument, NULL, 'p'},   {"crowd", required_argument, NULL, 't'},
		{"seconds", required_argument, NULL, 'n'},  {0},
	};
	static struct rings rings = {.sync = SYNC_SP_SC, .burst = 32, .pauses = 1};
	unsigned int capacity = 1024, lanes = 2, threads = 0, seconds = 1;
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's': rings.sync = choice(optarg, sync_names, RTE_DIM(sync_names), usage); break;
		case 'l': lanes = number(optarg, 1, 2); break;
		case 'b': rings.burst = number(optarg, 1, LARGEST_BURST); break;
		case 'c': capacity = number(optarg, 2, 1 << 20); break;
		case 't': threads = number(optarg, 2, 1024); break;
		case 'n': seconds = number(optarg, 1, 3600); break;
		case 'p': rings.pauses = number(optarg, 1, 1000); break;
		default: fail("%s", usage);
		}
	}
	if (optind != argc)
		fail("%s", usage);
	rings.ring = rte_ring_create_elem("ring", sizeof(uint64_t), capacity, rte_socket_id(), sync_flags[rings.sync]);
	if (rings.ring == NULL)
		fail("no ring for %u elements: %s", capacity, rte_strerror(rte_errno));
	rings.producer = (struct second_lane){.step = produce_step, .context = &rings};
	if (threads > 0)
		crowd(&rings, threads, seconds);
	else if (lanes == 2)
		serve(work_with_partner, begin, end, &rings);
	else
		serve(work_alone, NULL, NULL, &rings);
	return 0;
}

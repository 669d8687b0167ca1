/*
 * DPDK's spin, ticket and MCS locks: lock, count, unlock, alone or with a second lane that always wants the lock too.
 */

#include <getopt.h>

#include <rte_eal.h>
#include <rte_mcslock.h>
#include <rte_spinlock.h>
#include <rte_ticketlock.h>

#include "serve.h"

/* Locks in one piece of work, and in a step of the second lane. */
#define ONE_LANE 4096
#define TWO_LANES 512
#define STEP 32

enum kind { SPIN, TICKET, MCS };

static const char *const kinds[] = {"spin", "ticket", "mcs"};

static const char usage[] = "usage: locks [EAL options] -- --lock spin|ticket|mcs [--contended]";

/* The lock and what it guards, on one line: that is one line to move instead of two. */
struct locked_count {
	union {
		rte_spinlock_t spin;
		rte_ticketlock_t ticket;
		rte_mcslock_t *mcs;
	};
	uint64_t count;
} __rte_aligned(128);

static struct locked_count shared;

static inline uint64_t count_one(enum kind kind)
{
	uint64_t count;
	rte_mcslock_t place;

	switch (kind) {
	case SPIN:
		rte_spinlock_lock(&shared.spin);
		count = ++shared.count;
		rte_spinlock_unlock(&shared.spin);
		return count;
	case TICKET:
		rte_ticketlock_lock(&shared.ticket);
		count = ++shared.count;
		rte_ticketlock_unlock(&shared.ticket);
		return count;
	default:
		rte_mcslock_lock(&shared.mcs, &place);
		count = ++shared.count;
		rte_mcslock_unlock(&shared.mcs, &place);
		return count;
	}
}

static inline uint64_t count_many(enum kind kind, unsigned int locks)
{
	uint64_t count = 0;

	for (unsigned int i = 0; i < locks; i++)
		count = count_one(kind);
	return count;
}

/* The kind is a constant in each copy, as it is in a program that has one kind of lock. */
static uint64_t count_spin(unsigned int locks)
{
	return count_many(SPIN, locks);
}

static uint64_t count_ticket(unsigned int locks)
{
	return count_many(TICKET, locks);
}

static uint64_t count_mcs(unsigned int locks)
{
	return count_many(MCS, locks);
}

static uint64_t (*const counters[])(unsigned int locks) = {count_spin, count_ticket, count_mcs};

struct bench {
	uint64_t (*count)(unsigned int locks);
	unsigned int locks;
	bool contended;
	uint64_t counted; /* at the end of the last piece of work */
	struct second_lane second;
};

static void step(void *context)
{
	struct bench *bench = context;

	bench->count(STEP);
}

static void begin(void *context)
{
	struct bench *bench = context;

	if (bench->contended)
		begin_second_lane(&bench->second);
	bench->counted = bench->count(1);
}

static void end(void *context)
{
	struct bench *bench = context;

	if (bench->contended)
		end_second_lane(&bench->second);
}

static struct round work(void *context)
{
	struct bench *bench = context;
	uint64_t counted = bench->count(bench->locks), done = counted - bench->counted;

	bench->counted = counted;
	return (struct round){done, done};
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"lock", required_argument, NULL, 'l'},
						{"contended", no_argument, NULL, 'c'},
						{0}};
	static struct bench bench = {.count = count_ticket, .locks = ONE_LANE};
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'l':
			bench.count = counters[choice(optarg, kinds, RTE_DIM(kinds), usage)];
			break;
		case 'c':
			bench.contended = true;
			bench.locks = TWO_LANES;
			break;
		default:
			fail("%s", usage);
		}
	}
	bench.second.step = step;
	bench.second.context = &bench;
	serve(work, begin, end, &bench);
	rte_eal_cleanup();
	return 0;
}

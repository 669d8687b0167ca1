/*
 * Exact match on rte_hash: 16-byte keys, the hash by the CRC instructions, bulk lookups with their data; with --writer, while a
 * second lane replaces flows by others.
 */

#include <getopt.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "serve.h"

#define KEY_BYTES 16
#define BURSTS 64
#define INSERTIONS 1024
/* As in `warmlane bench exact-concurrent`. */
#define CHANGING 20000
#define REPLACED_A_SECOND 100000

enum operation { LOOKUP, LOOKUP_DATA, INSERT };

static const char usage[] =
	"exact [EAL options] -- [--operation lookup|lookup-data|insert] [--concurrent 0|1] [--writer 0|1] "
	"[--flows N] [--slots N] [--burst N]";

struct key {
	uint64_t words[2];
};

struct job {
	struct rte_hash *table;
	enum operation operation;
	unsigned int flows, burst, next;
	struct key *keys;
	/* The writer's. A position is freed when the next flow is replaced: lookups that began before are over by then. */
	struct second_lane writer;
	unsigned int oldest;
	int32_t removed;
	uint64_t due, pause;
};

/* The keys of `warmlane bench exact`: SplitMix64, twice. */
static uint64_t mix(uint64_t index)
{
	uint64_t z = (index + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static struct key key_of(uint64_t index)
{
	return (struct key){{mix(2 * index), mix(2 * index + 1)}};
}

/* Its order as well: xorshift64*. */
static uint64_t next_random(uint64_t *state, uint64_t bound)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 0x2545f4914f6cdd1d >> 32) * bound >> 32;
}

static struct round look_up(void *context)
{
	struct job *job = context;
	struct round round = {0};

	for (unsigned int number = 0; number < BURSTS; number++) {
		const void *keys[RTE_HASH_LOOKUP_BULK_MAX];
		int32_t positions[RTE_HASH_LOOKUP_BULK_MAX];
		void *data[RTE_HASH_LOOKUP_BULK_MAX];
		uint64_t hits;
		unsigned int found = 0;

		if (job->next + job->burst > job->flows)
			job->next = 0;
		for (unsigned int i = 0; i < job->burst; i++)
			keys[i] = &job->keys[job->next + i];
		job->next += job->burst;
		if (job->operation == LOOKUP_DATA) {
			found = rte_hash_lookup_bulk_data(job->table, keys, job->burst, &hits, data);
		} else if (rte_hash_lookup_bulk(job->table, keys, job->burst, positions) == 0) {
			found = positions[0] >= 0 ? job->burst : 0;
		}
		round.packets += job->burst;
		round.forwarded += found;
	}
	return round;
}

static struct round insert(void *context)
{
	struct job *job = context;
	struct round round = {0};
	unsigned int end;
	uint64_t start;

	/* Not counted, on both sides. */
	if (job->next == job->flows) {
		rte_hash_reset(job->table);
		job->next = 0;
	}
	end = RTE_MIN(job->flows, job->next + INSERTIONS);
	start = rte_rdtsc_precise();
	for (; job->next < end; job->next++) {
		void *data = (void *)(uintptr_t)job->next;

		round.packets++;
		round.forwarded += rte_hash_add_key_data(job->table, &job->keys[job->next], data) == 0;
	}
	round.cycles = rte_rdtsc_precise() - start;
	return round;
}

static void replace(void *context)
{
	struct job *job = context;
	uint64_t now = rte_rdtsc();
	unsigned int newest = (job->oldest + CHANGING / 2) % CHANGING;
	struct key key;

	if (now < job->due)
		return;
	/* After a pause between two rounds it starts anew, and doesn't catch up. */
	job->due = RTE_MAX(now, job->due + job->pause);
	if (job->removed >= 0)
		rte_hash_free_key_with_position(job->table, job->removed);
	key = key_of(job->flows + job->oldest);
	job->removed = rte_hash_del_key(job->table, &key);
	key = key_of(job->flows + newest);
	if (job->removed < 0 || rte_hash_add_key_data(job->table, &key, (void *)(uintptr_t)newest) != 0)
		fail("a flow can't be replaced");
	job->oldest = (job->oldest + 1) % CHANGING;
}

static void begin_writer(void *context)
{
	struct job *job = context;

	begin_second_lane(&job->writer);
}

static void end_writer(void *context)
{
	struct job *job = context;

	end_second_lane(&job->writer);
}

static void prepare_writer(struct job *job)
{
	job->writer = (struct second_lane){.step = replace, .context = job};
	job->removed = -1;
	job->pause = rte_get_tsc_hz() / REPLACED_A_SECOND;
	for (unsigned int i = 0; i < CHANGING / 2; i++) {
		struct key key = key_of(job->flows + i);

		if (rte_hash_add_key_data(job->table, &key, (void *)(uintptr_t)i) != 0)
			fail("the table is full: use more --slots");
	}
}

static void prepare(struct job *job, unsigned int slots, bool concurrent)
{
	struct rte_hash_parameters parameters = {
		.name = "exact",
		.entries = slots,
		.key_len = KEY_BYTES,
		.hash_func = rte_hash_crc,
		.hash_func_init_val = mix(1),
		.socket_id = rte_socket_id(),
		.extra_flag = concurrent ? RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF : 0,
	};
	uint64_t state = 0x9e3779b97f4a7c15;

	job->table = rte_hash_create(&parameters);
	job->keys = rte_malloc(NULL, sizeof(*job->keys) * job->flows, RTE_CACHE_LINE_SIZE);
	if (job->table == NULL || job->keys == NULL)
		fail("no memory for the table: %s", rte_strerror(rte_errno));
	for (unsigned int i = 0; i < job->flows; i++) {
		struct key key = key_of(i);

		job->keys[i] = key;
		if (job->operation != INSERT &&
		    rte_hash_add_key_data(job->table, &key, (void *)(uintptr_t)i) != 0)
			fail("the table is full with %u flows: use more --slots", i);
	}
	if (job->operation != INSERT)
		for (unsigned int i = 0; i < job->flows; i++)
			job->keys[i] = key_of(next_random(&state, job->flows));
}

int main(int count, char **arguments)
{
	static const char *const operations[] = {"lookup", "lookup-data", "insert"};
	static const struct option names[] = {
		{"operation", required_argument, NULL, 'o'}, {"concurrent", required_argument, NULL, 'c'},
		{"flows", required_argument, NULL, 'f'},     {"slots", required_argument, NULL, 's'},
		{"burst", required_argument, NULL, 'b'},     {"writer", required_argument, NULL, 'w'},
		{NULL, 0, NULL, 0},
	};
	struct job job = {.operation = LOOKUP_DATA, .flows = 1000000, .burst = 64};
	unsigned int slots = 1 << 20;
	bool concurrent = false, writer = false;
	int letter;

	start_dpdk(&count, &arguments);
	while ((letter = getopt_long(count, arguments, "", names, NULL)) != -1) {
		switch (letter) {
		case 'o': job.operation = choice(optarg, operations, RTE_DIM(operations), usage); break;
		case 'c': concurrent = number(optarg, 0, 1); break;
		case 'w': writer = number(optarg, 0, 1); break;
		case 'f': job.flows = number(optarg, RTE_HASH_LOOKUP_BULK_MAX, 1 << 26); break;
		case 's': slots = number(optarg, RTE_HASH_LOOKUP_BULK_MAX, 1 << 27); break;
		case 'b': job.burst = number(optarg, 1, RTE_HASH_LOOKUP_BULK_MAX); break;
		default: fail("unknown option\n%s", usage);
		}
	}
	if (optind != count)
		fail("there is an argument too many\n%s", usage);
	prepare(&job, slots, concurrent);
	if (writer) {
		prepare_writer(&job);
		serve(look_up, begin_writer, end_writer, &job);
	} else {
		serve(job.operation == INSERT ? insert : look_up, NULL, NULL, &job);
	}
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}

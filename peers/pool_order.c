/*
 * In which order DPDK's pools hand out their buffers: asked by `warmlane lab memory-traffic`, whose own pools go the same way.
 *
 * The way of buffers is that of a DOCSIS downstream: one lane takes bursts for a card's receive ring; another takes a buffer for each
 * packet to the remote PHY, frees those that were received, and frees what is sent once the card's transmit ring is full. Both lanes'
 * caches are here, and each step is made when the one before it is done. What is received and what is sent have a pool each, as in Intel's
 * vCMTS. Prints a line "r OFFSET" for each buffer that is received into and "s OFFSET" for each that is sent, in bytes from its pool's first
 * buffer, and "end" at last.
 *
 * With --marks it prints where its marks are instead, as "marks ADDRESS": lines of memory that it writes to whenever a burst begins, a pool's code
 * begins, and a pool's code has ended. Who watches its accesses knows by them which are the pools' own.
 */

#include <getopt.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#include "pool_options.h"

#define BURST 32U
#define DATA 2048
#define MOST (1 << 20)

static const char *const usage =
	"usage: pool_order EAL-OPTIONS -- [--kind ring_mp_mc|stack|lf_stack] [--cache N] [--buffers N] [--posted N]\n"
	"                  [--queued N] [--held N] [--frames N] [--sent-per-thousand N] [--marks]";

/* A line for each thing that is marked. */
enum mark { BURST_BEGINS, POOL_BEGINS, POOL_ENDS, MARKS };

static struct {
	volatile uint64_t word;
	char rest[56];
} marks[MARKS] __attribute__((aligned(64)));

static bool is_marking;

static void mark(enum mark which)
{
	marks[which].word = 1;
}

/* Buffers in their order; more are put in than `count` only if the pool has more. */
struct fifo {
	void **slots;
	unsigned int capacity, first, count;
};

static void make(struct fifo *fifo, unsigned int capacity)
{
	fifo->slots = calloc(capacity, sizeof(void *));
	fifo->capacity = capacity;
	if (fifo->slots == NULL)
		fail("no memory for %u buffers in order", capacity);
}

static void put(struct fifo *fifo, void *buffer)
{
	if (fifo->count == fifo->capacity)
		fail("more buffers are under way than the pool has");
	fifo->slots[(fifo->first + fifo->count++) % fifo->capacity] = buffer;
}

static void *take(struct fifo *fifo)
{
	void *buffer = fifo->slots[fifo->first];

	fifo->first = (fifo->first + 1) % fifo->capacity;
	fifo->count--;
	return buffer;
}

static void note(struct rte_mempool *pool, void *context, void *buffer, unsigned int index)
{
	void **buffers = context;

	(void)pool;
	buffers[index] = buffer;
}

static int compare(const void *a, const void *b)
{
	uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;

	return first < second ? -1 : first > second;
}

static struct rte_mempool_cache *cache_of(unsigned int size)
{
	struct rte_mempool_cache *cache = NULL;

	if (size > 0 && (cache = rte_mempool_cache_create(size, SOCKET_ID_ANY)) == NULL)
		fail("no cache of %u buffers", size);
	return cache;
}

/* A pool, and what two lanes keep of it: the one that receives and the one that sends. */
struct side {
	struct rte_mempool *pool;
	/* All buffers by address, and the bytes that one takes in a huge page. */
	void **buffers;
	unsigned int count;
	size_t stride;
	struct rte_mempool_cache *upper, *lower;
};

static struct side side_of(const char *name, const struct pool_options *options)
{
	unsigned int buffers = options->buffers;
	struct side side = {.count = buffers};

	/* Without caches by lcore: both lanes run on one here. */
	side.pool = rte_pktmbuf_pool_create_by_ops(name, buffers, 0, 0, RTE_PKTMBUF_HEADROOM + DATA, rte_socket_id(),
						   options->kind);
	if (side.pool == NULL)
		fail("no pool of kind %s with %u buffers", options->kind, buffers);
	side.stride = side.pool->header_size + side.pool->elt_size + side.pool->trailer_size;
	side.buffers = calloc(buffers, sizeof(void *));
	if (side.buffers == NULL || rte_mempool_obj_iter(side.pool, note, side.buffers) != buffers)
		fail("not all buffers of the pool are there");
	qsort(side.buffers, buffers, sizeof(void *), compare);
	side.upper = cache_of(options->cache);
	side.lower = cache_of(options->cache);
	return side;
}

/*
 * Where a buffer would be in huge pages: one behind the other. Without them, as here, a pool puts none across two pages, and has one in each page of
 * 4 KiB, which would crowd some sets of a cache and leave others.
 */
static size_t offset(const struct side *side, void *buffer)
{
	void **place = bsearch(&buffer, side->buffers, side->count, sizeof(void *), compare);

	if (place == NULL)
		fail("a buffer that is none of the pool's");
	return (place - side->buffers) * side->stride;
}

static void get(struct side *side, struct rte_mempool_cache *cache, char letter, unsigned int count, struct fifo *fifo)
{
	void *burst[BURST];

	mark(POOL_BEGINS);
	int result = rte_mempool_generic_get(side->pool, burst, count, cache);
	mark(POOL_ENDS);
	if (result != 0)
		fail("the pool has run out of buffers: give it more");
	for (unsigned int i = 0; i < count; i++) {
		if (!is_marking)
			printf("%c %zu\n", letter, offset(side, burst[i]));
		put(fifo, burst[i]);
	}
}

static void give_back(struct side *side, unsigned int count, struct fifo *fifo)
{
	void *burst[BURST];

	for (unsigned int i = 0; i < count; i++)
		burst[i] = take(fifo);
	mark(POOL_BEGINS);
	rte_mempool_generic_put(side->pool, burst, count, side->lower);
	mark(POOL_ENDS);
}

/* Buffers that wait between the lanes once a burst is taken: in whole bursts, and as many as should on average over some bursts. */
static unsigned int waiting_now(unsigned int queued, uint64_t step)
{
	enum { ROUND = 16 };
	bool one_more = step % ROUND < queued % BURST * ROUND / BURST;

	return (queued / BURST + one_more) * BURST;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		POOL_OPTIONS,
		{"posted", required_argument, NULL, 'p'},
		{"queued", required_argument, NULL, 'q'}, {"held", required_argument, NULL, 'h'},
		{"frames", required_argument, NULL, 'f'}, {"sent-per-thousand", required_argument, NULL, 's'},
		{"marks", no_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	struct pool_options pool = {.kind = "ring_mp_mc", .cache = 256, .buffers = 32767, .most_buffers = MOST};
	unsigned int posted = 352, queued = 64, held = 352, frames = 65536, share = 1000;
	struct fifo waiting = {0}, ring = {0};
	struct side received = {0}, made = {0};
	uint64_t through = 0, sent = 0, step = 0;
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'p':
			posted = number(optarg, BURST, MOST);
			break;
		case 'q':
			queued = number(optarg, 0, MOST);
			break;
		case 'h':
			held = number(optarg, 0, MOST);
			break;
		case 'f':
			frames = number(optarg, BURST, 1 << 24);
			break;
		case 's':
			share = number(optarg, 1, 4000);
			break;
		case 'm':
			is_marking = true;
			break;
		default:
			if (!read_pool_option(&pool, option))
				fail("%s", usage);
		}
	}
	received = side_of("received", &pool);
	made = side_of("sent", &pool);
	make(&waiting, pool.buffers);
	make(&ring, pool.buffers);
	if (is_marking) {
		printf("marks %zu\n", (size_t)(uintptr_t)marks);
		fflush(stdout);
	}
	for (; through < frames; step++) {
		mark(BURST_BEGINS);
		get(&received, received.upper, 'r', BURST, &waiting);
		while (waiting.count > posted + waiting_now(queued, step)) {
			through += BURST;
			for (; sent < through * share / 1000; sent++)
				get(&made, made.lower, 's', 1, &ring);
			give_back(&received, BURST, &waiting);
			while (ring.count > held)
				give_back(&made, RTE_MIN(ring.count, BURST), &ring);
		}
	}
	puts("end");
	return EXIT_SUCCESS;
}

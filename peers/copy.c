/*
 * rte_memcpy and the C library's memcpy: what a copy costs by size, and from and to where.
 *
 * The method is that of DPDK's own app/test/test_memcpy_perf.c: batches of 100 copies of one size, each at a random
 * place of much memory (memory) or all between two places (cache). A round's figure is the geometric mean over the sizes, so
 * that a ratio of two rounds is the mean ratio of their sizes; "sizes" has the cycles of each.
 */

#include <math.h>
#include <sys/mman.h>

#include <rte_eal.h>
#include <rte_memcpy.h>

#include "serve.h"

#define PLACES (1UL << 22)
#define MEMORY (PLACES * ALIGNMENT + LARGEST)
#define HUGE_PAGE (2UL << 20)
#define LARGEST 8192
#define ALIGNMENT 32
/* Half a page away from where copies to the cache go; on our side alike, which says why. */
#define CACHED_SOURCE 2048
#define BATCH 100
/* Where the walk through memory begins, in every round anew and on our side alike (tools/lab/src/benches/copy.rs). */
#define SEED 0x9e3779b97f4a7c15UL

static const char usage[] = "copy [EAL options] -- rte|library cache-cache|cache-memory|memory-cache|memory-memory";

static const size_t sizes[] = {1,   7,	 8,   9,   15,	 16,   17,   31,   32,	 33,   63,   64,   65,
			       127, 128, 129, 255, 256,	 257,  320,  384,  511,	 512,  513,  1023, 1024,
			       1025, 1518, 1522, 1600, 2048, 3072, 4096, 5120, 6144, 7168, 8192};
#define SIZES RTE_DIM(sizes)

struct context {
	bool library, from_memory, to_memory;
	uint8_t *destination, *source;
	uint64_t random, sweeps;
	uint64_t cycles[SIZES];
	char more[SIZES * 24 + 16];
};

static size_t anywhere(struct context *context)
{
	/* xorshift64* (Vigna 2016) */
	context->random ^= context->random >> 12;
	context->random ^= context->random << 25;
	context->random ^= context->random >> 27;
	return (context->random * 0x2545f4914f6cdd1dUL >> 32) % PLACES * ALIGNMENT;
}

static uint64_t batch(struct context *context, size_t size)
{
	struct {
		size_t from, to;
	} places[BATCH];
	uint64_t begin;

	for (unsigned int i = 0; i < BATCH; i++) {
		places[i].from = context->from_memory ? anywhere(context) : CACHED_SOURCE;
		places[i].to = context->to_memory ? anywhere(context) : 0;
	}
	/* The compiler must not know the size. */
	asm volatile("" : "+r"(size));
	begin = rte_rdtsc_precise();
	if (context->library)
		for (unsigned int i = 0; i < BATCH; i++)
			memcpy(context->destination + places[i].to, context->source + places[i].from, size);
	else
		for (unsigned int i = 0; i < BATCH; i++)
			rte_memcpy(context->destination + places[i].to, context->source + places[i].from, size);
	return rte_rdtsc_precise() - begin;
}

static struct round work(void *argument)
{
	struct context *context = argument;
	double logarithms = 0;
	size_t length;

	for (unsigned int i = 0; i < SIZES; i++) {
		uint64_t cycles = batch(context, sizes[i]);

		context->cycles[i] += cycles;
		logarithms += log(cycles > 0 ? cycles : 1);
	}
	context->sweeps++;
	length = snprintf(context->more, sizeof(context->more), ",\"sizes\":[");
	for (unsigned int i = 0; i < SIZES; i++)
		length += snprintf(context->more + length, sizeof(context->more) - length, "%s%.3f", i == 0 ? "" : ",",
				   (double)context->cycles[i] / (context->sweeps * BATCH));
	snprintf(context->more + length, sizeof(context->more) - length, "]");
	return (struct round){SIZES * BATCH, SIZES * BATCH, exp(logarithms / SIZES) * SIZES, context->more};
}

static void begin(void *argument)
{
	struct context *context = argument;

	memset(context->cycles, 0, sizeof(context->cycles));
	context->sweeps = 0;
	context->random = SEED;
}

/* Memory on transparent huge pages, where the kernel gives them: our side has the same. */
static uint8_t *memory(uint8_t content)
{
	uint8_t *start = mmap(NULL, MEMORY + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		fail("no memory for %lu MiB", MEMORY >> 20);
	start = RTE_PTR_ALIGN(start, HUGE_PAGE);
	madvise(start, MEMORY, MADV_HUGEPAGE);
	memset(start, content, MEMORY);
	return start;
}

int main(int argc, char **argv)
{
	static const char *const ways[] = {"rte", "library"};
	static const char *const places[] = {"cache-cache", "cache-memory", "memory-cache", "memory-memory"};
	static struct context context;
	int place;

	start_dpdk(&argc, &argv);
	if (argc != 3)
		fail("two words were expected\n%s", usage);
	context.library = choice(argv[1], ways, RTE_DIM(ways), usage) == 1;
	place = choice(argv[2], places, RTE_DIM(places), usage);
	context.from_memory = place >= 2;
	context.to_memory = place % 2 == 1;
	context.destination = memory(1);
	context.source = memory(2);
	serve(work, begin, NULL, &context);
	rte_eal_cleanup();
	return 0;
}

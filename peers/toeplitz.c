/*
 * The hash of receive-side scaling by DPDK's library: bit by bit (rte_softrss_be), and by multiplication of matrices (rte_thash_gfni)
 * one by one and in bulk. 64 inputs take turns, as in `warmlane bench toeplitz` and `toeplitz-ipv6`.
 */

#define ALLOW_EXPERIMENTAL_API
#include <rte_thash.h>
#include <rte_thash_gfni.h>

#include "serve.h"

#define INPUTS 64
#define BURSTS 16
#define LONGEST 36
#define KEY 40

enum way { BITS, MATRICES, BULK };

static const char usage[] = "toeplitz [EAL options] -- --bytes 12|36 [--way bits|gfni|gfni-bulk]";

/* That of Microsoft's verification suite. */
static const uint8_t key[KEY] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

struct job {
	enum way way;
	unsigned int bytes;
	uint64_t matrices[KEY];
	uint8_t converted[KEY];
	uint8_t inputs[INPUTS][LONGEST] __rte_aligned(4);
	uint8_t *places[INPUTS];
	uint32_t hashes[INPUTS];
};

/* Inputs for rte_softrss_be are in the machine's order: others are as on the wire. */
static void hash(struct job *job, unsigned int bytes)
{
	switch (job->way) {
	case BITS:
		for (unsigned int i = 0; i < INPUTS; i++)
			job->hashes[i] = rte_softrss_be((uint32_t *)job->inputs[i], bytes / 4, job->converted);
		break;
	case MATRICES:
		for (unsigned int i = 0; i < INPUTS; i++)
			job->hashes[i] = rte_thash_gfni(job->matrices, job->inputs[i], bytes);
		break;
	case BULK:
		rte_thash_gfni_bulk(job->matrices, bytes, job->places, job->hashes, INPUTS);
		break;
	}
}

static struct round work(void *context)
{
	struct job *job = context;

	for (unsigned int burst = 0; burst < BURSTS; burst++) {
		unsigned int bytes = job->bytes;

		/* The compiler must not know what was hashed already. */
		asm volatile("" : "+r"(bytes) : : "memory");
		/* But it may know the size, as ours does. */
		if (bytes == 12)
			hash(job, 12);
		else
			hash(job, LONGEST);
	}
	return (struct round){BURSTS * INPUTS, BURSTS * INPUTS};
}

static void swap_words(struct job *job)
{
	for (unsigned int i = 0; i < INPUTS; i++)
		for (unsigned int at = 0; at < LONGEST; at += 4) {
			uint32_t *word = (uint32_t *)&job->inputs[i][at];

			*word = rte_be_to_cpu_32(*word);
		}
}

int main(int count, char **arguments)
{
	static const char *const ways[] = {"bits", "gfni", "gfni-bulk"};
	static const struct option options[] = {
		{"bytes", required_argument, NULL, 'b'},
		{"way", required_argument, NULL, 'w'},
		{NULL, 0, NULL, 0},
	};
	/* From 66.9.149.187:2794 to 161.142.100.80:1766. */
	static const uint8_t example[12] = {66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6};
	static struct job job = {.way = BULK};
	int option;

	start_dpdk(&count, &arguments);
	while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
		switch (option) {
		case 'b':
			job.bytes = number(optarg, 12, LONGEST);
			break;
		case 'w':
			job.way = choice(optarg, ways, RTE_DIM(ways), usage);
			break;
		default:
			fail("%s", usage);
		}
	}
	if (job.bytes != 12 && job.bytes != LONGEST)
		fail("%s", usage);
	/* Not rte_thash_gfni_supported: it says what the library was built for, and the functions are in the header. */
#ifndef RTE_THASH_GFNI_DEFINED
	if (job.way != BITS)
		fail("this processor has no GFNI and AVX-512");
#endif
	rte_convert_rss_key((const uint32_t *)key, (uint32_t *)job.converted, KEY);
	rte_thash_complete_matrix(job.matrices, key, KEY);
	for (unsigned int i = 0; i < INPUTS; i++) {
		job.places[i] = job.inputs[i];
		memcpy(job.inputs[i], example, sizeof(example));
	}
	if (job.way == BITS)
		swap_words(&job);
	hash(&job, sizeof(example));
	for (unsigned int i = 0; i < INPUTS; i++) {
		if (job.hashes[i] != 0x51ccc178)
			fail("the library hashes otherwise than Microsoft's verification suite says");
		for (unsigned int at = 0; at < LONGEST; at++)
			job.inputs[i][at] = i * 89 + at * 31;
	}
	serve(work, NULL, NULL, &job);
	rte_eal_cleanup();
	return 0;
}

/*
 * rte_raw_cksum: the sum of 16-bit words that Internet checksums are made of.
 *
 * Data lies where it lies in a buffer behind an Ethernet and an IPv4 header; as many buffers as the first-level cache holds with
 * room to spare take turns. `warmlane bench checksum-64` and its neighbours have the same.
 */

#include <rte_ip.h>

#include "serve.h"

#define LINE 64
#define DATA_AT 34
#define MOST_BUFFERS 64
#define CACHE (16 << 10)
#define SUMS 4096

static const char usage[] = "checksum [EAL options] -- --bytes N";

struct job {
	size_t bytes, apart;
	unsigned int buffers;
	uint8_t *memory;
};

static struct round sum(void *context)
{
	const struct job *job = context;
	const uint8_t *data = job->memory + DATA_AT;
	size_t bytes = job->bytes;
	unsigned int sums = 0;

	/* The compiler must not know the size. */
	asm volatile("" : "+r"(bytes));
	while (sums < SUMS) {
		for (unsigned int i = 0; i < job->buffers; i++) {
			uint16_t sum = rte_raw_cksum(data + i * job->apart, bytes);

			asm volatile("" : : "r"(sum));
		}
		sums += job->buffers;
	}
	return (struct round){sums, sums};
}

int main(int count, char **arguments)
{
	static const struct option options[] = {
		{"bytes", required_argument, NULL, 'b'},
		{NULL, 0, NULL, 0},
	};
	static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
	static struct job job;
	int option;

	start_dpdk(&count, &arguments);
	while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
		if (option != 'b')
			fail("%s", usage);
		job.bytes = number(optarg, 1, 9216);
	}
	if (job.bytes == 0)
		fail("%s", usage);
	/* RFC 1071 section 3. */
	if (rte_raw_cksum(example, sizeof(example)) != htons(0xddf2))
		fail("rte_raw_cksum sums otherwise than RFC 1071 says");
	job.apart = (DATA_AT + job.bytes + LINE - 1) / LINE * LINE;
	job.buffers = RTE_MAX(1, RTE_MIN(MOST_BUFFERS, (int)(CACHE / job.apart)));
	job.memory = aligned_alloc(LINE, job.buffers * job.apart);
	if (job.memory == NULL)
		fail("out of memory");
	for (size_t i = 0; i < job.buffers * job.apart; i++)
		job.memory[i] = i * 31;
	serve(sum, NULL, NULL, &job);
	rte_eal_cleanup();
	return 0;
}

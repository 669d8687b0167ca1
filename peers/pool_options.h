/* The options that programs with a pool of DPDK's have in common: its kind, the size of lanes' caches, and how many buffers. */

#ifndef POOL_OPTIONS_H
#define POOL_OPTIONS_H

#include <rte_mempool.h>

#include "serve.h"

#define POOL_OPTIONS \
	{"kind", required_argument, NULL, 'k'}, {"cache", required_argument, NULL, 'c'}, {"buffers", required_argument, NULL, 'b'}

struct pool_options {
	const char *kind;
	unsigned int cache, buffers, most_buffers;
};

/* Whether the option is one of these; then its value is read. */
static inline bool read_pool_option(struct pool_options *pool, int option)
{
	switch (option) {
	case 'k':
		pool->kind = optarg;
		return true;
	case 'c':
		pool->cache = number(optarg, 0, RTE_MEMPOOL_CACHE_MAX_SIZE);
		return true;
	case 'b':
		pool->buffers = number(optarg, 512, pool->most_buffers);
		return true;
	default:
		return false;
	}
}

#endif

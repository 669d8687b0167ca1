/*
 * DPDK's quiescent-state RCU: what a reader pays for a report while nobody updates.
 */

#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_rcu_qsbr.h>

#include "serve.h"

/* Reports in one piece of work. */
#define REPEAT 16384
#define READERS 64

static struct round work(void *context)
{
	struct rte_rcu_qsbr *domain = context;

	for (unsigned int i = 0; i < REPEAT; i++)
		rte_rcu_qsbr_quiescent(domain, 0);
	return (struct round){REPEAT, REPEAT};
}

int main(int argc, char **argv)
{
	struct rte_rcu_qsbr *domain;

	start_dpdk(&argc, &argv);
	domain = rte_zmalloc("domain", rte_rcu_qsbr_get_memsize(READERS), RTE_CACHE_LINE_SIZE);
	if (domain == NULL || rte_rcu_qsbr_init(domain, READERS) != 0 || rte_rcu_qsbr_thread_register(domain, 0) != 0)
		fail("no memory for %d readers", READERS);
	rte_rcu_qsbr_thread_online(domain, 0);
	serve(work, NULL, NULL, domain);
	rte_eal_cleanup();
	return 0;
}

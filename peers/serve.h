/*
 * What all peers have in common: rounds on request, and how they read their options.
 *
 * A peer prints "ready", then answers each line "go SECONDS" on standard input with one JSON object on standard output,
 * until its input ends. Between rounds nothing of it may run: another program is measured then.
 */

#ifndef SERVE_H
#define SERVE_H

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>

/* What a piece of work came to. */
struct round {
	uint64_t packets;
	uint64_t forwarded; /* must equal `packets` in the end; the same number where nothing can be lost */
	double cycles; /* that count, for work that keeps its own account of them; 0: all do */
	const char *more; /* to be added to the round's line, with a comma in front; NULL if nothing is */
};

/* Some work on the main lane, less than a millisecond. */
typedef struct round (*work_function)(void *context);
/* Before or after a round, outside the time that counts. NULL if there is nothing to do. */
typedef void (*edge_function)(void *context);

static inline void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("peer: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(EXIT_FAILURE);
}

/* Starts DPDK with the options that are its own, and leaves those behind them, as if they were all. */
static inline void start_dpdk(int *count, char ***arguments)
{
	int used = rte_eal_init(*count, *arguments);

	if (used < 0)
		fail("DPDK does not start: %s", rte_strerror(rte_errno));
	*count -= used;
	*arguments += used;
	/* DPDK has read options, too. */
	optind = 1;
}

static inline struct round run_round(work_function work, edge_function begin, edge_function end, void *context,
				     double seconds, uint64_t *cycles)
{
	struct round total = {0};
	uint64_t wanted = seconds * rte_get_tsc_hz(), start;

	if (begin != NULL)
		begin(context);
	start = rte_rdtsc_precise();
	do {
		struct round part = work(context);

		total.packets += part.packets;
		total.forwarded += part.forwarded;
		total.cycles += part.cycles;
		total.more = part.more;
		*cycles = rte_rdtsc_precise() - start;
	} while (*cycles < wanted);
	if (end != NULL)
		end(context);
	return total;
}

/* Warms up and serves rounds until the input ends. */
static inline void serve(work_function work, edge_function begin, edge_function end, void *context)
{
	uint64_t cycles;
	char line[64];

	run_round(work, begin, end, context, 0.2, &cycles);
	puts("ready");
	fflush(stdout);
	for (unsigned int number = 0; fgets(line, sizeof(line), stdin) != NULL; number++) {
		struct round round;
		double seconds;

		if (sscanf(line, "go %lf", &seconds) != 1 || seconds <= 0 || seconds > 3600)
			fail("'go SECONDS' was expected on standard input, not: %s", line);
		round = run_round(work, begin, end, context, seconds, &cycles);
		printf("{\"round\":%u,\"packets\":%" PRIu64 ",\"forwarded\":%" PRIu64 ",\"cycles\":%" PRIu64
		       ",\"seconds\":%.9f%s}\n",
		       number, round.packets, round.forwarded, round.cycles > 0 ? (uint64_t)round.cycles : cycles,
		       (double)cycles / rte_get_tsc_hz(), round.more == NULL ? "" : round.more);
		fflush(stdout);
	}
}

/* The second lane: repeats a step while a round lasts. Between rounds its thread sleeps in DPDK. */
struct second_lane {
	void (*step)(void *context);
	void *context;
	volatile bool running __rte_cache_aligned;
};

static inline int repeat_step(void *argument)
{
	struct second_lane *lane = argument;

	while (lane->running)
		lane->step(lane->context);
	return 0;
}

static inline void begin_second_lane(struct second_lane *lane)
{
	unsigned int core = rte_get_next_lcore(-1, true, false);

	if (core == RTE_MAX_LCORE)
		fail("a second lane needs a second CPU: -l FIRST,SECOND");
	lane->running = true;
	rte_eal_remote_launch(repeat_step, lane, core);
}

static inline void end_second_lane(struct second_lane *lane)
{
	lane->running = false;
	rte_eal_mp_wait_lcore();
}

/* ---- Options ---- */

static inline unsigned int number(const char *text, unsigned int least, unsigned int most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < least || value > most)
		fail("'%s' is no number from %u to %u", text, least, most);
	return value;
}

static inline int choice(const char *text, const char *const *names, int count, const char *usage)
{
	for (int i = 0; i < count; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	fail("'%s' is not known here\n%s", text, usage);
}

#endif

/*
 * Lets testpmd itself take turns: its txonly mode with --txonly-multi-flow, on the port that the environment names.
 *
 * This program becomes testpmd. A child of it translates: "go SECONDS" into testpmd's own "start" and "stop", and the
 * count that testpmd then prints into the line of a round. Between rounds testpmd's lane waits in DPDK for its next start.
 */

#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

#define MAXIMUM_ARGUMENTS 64

static const char prompt[] = "testpmd> ";

struct testpmd {
	FILE *commands;
	FILE *answers;
};

/* Reads until testpmd waits for a command; says how many packets its last statistics speak of. */
static uint64_t answer(struct testpmd *testpmd)
{
	char line[512];
	size_t length = 0;
	uint64_t packets = 0;
	int next;

	while ((next = fgetc(testpmd->answers)) != EOF) {
		line[length++] = (char)next;
		line[length] = '\0';
		if (length + 1 == sizeof(line) || next == '\n') {
			sscanf(line, " TX-packets: %" SCNu64, &packets);
			length = 0;
		} else if (length == strlen(prompt) && strcmp(line, prompt) == 0) {
			return packets;
		}
	}
	fail("testpmd has ended");
}

static void command(struct testpmd *testpmd, const char *text)
{
	fputs(text, testpmd->commands);
	fflush(testpmd->commands);
}

/* A round: the time that counts begins when testpmd says that it has started, and ends before it is told to stop. */
static uint64_t run(struct testpmd *testpmd, double seconds, uint64_t *cycles)
{
	struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (time_t)seconds) * 1e9)};
	uint64_t begin;

	command(testpmd, "start\n");
	answer(testpmd);
	begin = rte_rdtsc();
	nanosleep(&time, NULL);
	*cycles = rte_rdtsc() - begin;
	command(testpmd, "stop\n");
	return answer(testpmd);
}

static void __attribute__((noreturn)) translate(struct testpmd *testpmd)
{
	uint64_t cycles;
	char line[64];

	answer(testpmd);
	run(testpmd, 0.2, &cycles);
	puts("ready");
	fflush(stdout);
	for (unsigned int number = 0; fgets(line, sizeof(line), stdin) != NULL; number++) {
		double seconds;
		uint64_t packets;

		if (sscanf(line, "go %lf", &seconds) != 1 || seconds <= 0 || seconds > 3600)
			fail("'go SECONDS' was expected on standard input, not: %s", line);
		packets = run(testpmd, seconds, &cycles);
		printf("{\"round\":%u,\"packets\":%" PRIu64 ",\"forwarded\":%" PRIu64 ",\"cycles\":%" PRIu64
		       ",\"seconds\":%.9f}\n",
		       number, packets, packets, cycles, seconds);
		fflush(stdout);
	}
	command(testpmd, "quit\n");
	exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
	/* Its output goes to a pipe, and would stay in a buffer. */
	char *arguments[MAXIMUM_ARGUMENTS + 1] = {"stdbuf", "-oL", "dpdk-testpmd"};
	int count = 3, commands[2], answers[2];
	static char lanes[64];

	for (int i = 1; i < argc && count < MAXIMUM_ARGUMENTS; i++) {
		if (strcmp(argv[i], "-l") == 0 && i + 1 < argc) {
			/* Its main lane, which only waits for commands, shares the CPU. */
			snprintf(lanes, sizeof(lanes), "--lcores=(0,1)@%u", number(argv[++i], 0, 1023));
			arguments[count++] = lanes;
		} else if (strncmp(argv[i], "--main-lcore", 12) != 0) {
			arguments[count++] = argv[i];
		}
	}
	if (pipe(commands) != 0 || pipe(answers) != 0)
		fail("no pipe");
	switch (fork()) {
	case -1:
		fail("no second process");
	case 0: {
		struct testpmd testpmd = {.commands = fdopen(commands[1], "w"), .answers = fdopen(answers[0], "r")};

		/* Where testpmd doesn't start, nobody is to wait for it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(commands[0]);
		close(answers[1]);
		translate(&testpmd);
	}
	default:
		dup2(commands[0], STDIN_FILENO);
		dup2(answers[1], STDOUT_FILENO);
		close(commands[1]);
		close(answers[0]);
		execvp(arguments[0], arguments);
		fail("stdbuf does not start: apt-get install coreutils dpdk");
	}
}

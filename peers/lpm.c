/*
 * Longest-prefix match on DPDK, and WITH_POPTRIE in poptrie: the peer of `warmlane bench lpm4...` and `lpm6...`.
 *
 * Reads a table of prefixes, one a line, gives each one of 64 next hops, and looks up bursts of addresses, the same ones in
 * the same order as ours: both sides have the same generator.
 */

#include <arpa/inet.h>
#include <getopt.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>

#ifdef WITH_POPTRIE
#include <poptrie.h>
#endif

#include "serve.h"

#define LARGEST_BURST 256
#define CHECKED 256
#define NEXT_HOPS 64
#define LOOKUPS (1 << 12)
#define IPV4_ADDRESSES (1 << 22)
#define IPV6_ADDRESSES (1 << 20)
#define IPV6_BYTES 16
#define MOST_PREFIXES (1 << 20)

enum lookup { LPM, FIB_SCALAR, FIB_AVX512, FIB6_SCALAR, FIB6_AVX512, POPTRIE, POPTRIE6 };
static const char *const lookups[] = {
	"lpm", "fib-scalar", "fib-avx512", "fib6-scalar", "fib6-avx512",
#ifdef WITH_POPTRIE
	"poptrie", "poptrie6",
#endif
};
enum locality { INSIDE, UNIFORM };
static const char *const localities[] = {"inside", "uniform"};

static const char *const usage =
	"usage: lpm EAL-OPTIONS -- --table FILE [--lookup lpm|fib-scalar|fib-avx512|fib6-scalar|fib6-avx512"
#ifdef WITH_POPTRIE
	"|poptrie|poptrie6"
#endif
	"]\n"
	"           [--addresses inside|uniform] [--burst N]";

struct prefix {
	uint8_t address[IPV6_BYTES]; /* IPv4: the first four */
	uint8_t length;
};

struct state {
	enum lookup lookup;
	unsigned int burst;
	size_t next, count;
	struct rte_lpm *lpm;
	struct rte_fib *fib;
	struct rte_fib6 *fib6;
	uint32_t *ipv4;
	uint8_t (*ipv6)[IPV6_BYTES];
#ifdef WITH_POPTRIE
	struct poptrie *poptrie;
	__uint128_t *ipv6_numbers;
#endif
};

static bool is_ipv6(enum lookup lookup)
{
	return lookup == FIB6_SCALAR || lookup == FIB6_AVX512 || lookup == POPTRIE6;
}

/* xorshift64*, after Marsaglia 2003 and Vigna 2016. */
static const uint64_t seed = 0x9e3779b97f4a7c15;

static uint64_t random_bits(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

static size_t below(uint64_t *state, size_t bound)
{
	return ((random_bits(state) >> 32) * bound) >> 32;
}

#ifdef WITH_POPTRIE
/* It knows pointers, none of them NULL, and no bursts. The processor has several lookups under way by itself. */
static inline void look_up_in_poptrie(const struct state *state, size_t at, uint64_t *hops, unsigned int burst)
{
	for (unsigned int i = 0; i < burst; i++)
		hops[i] = (uintptr_t)(state->lookup == POPTRIE ? poptrie_lookup(state->poptrie, state->ipv4[at + i])
							       : poptrie6_lookup(state->poptrie, state->ipv6_numbers[at + i]));
}
#else
static inline void look_up_in_poptrie(const struct state *state, size_t at, uint64_t *hops, unsigned int burst)
{
	(void)state, (void)at, (void)hops, (void)burst;
}
#endif

static struct round look_up(void *context)
{
	struct state *state = context;
	struct round round = {0};
	uint64_t hops[LARGEST_BURST];
	uint32_t short_hops[LARGEST_BURST];

	if (state->next + LOOKUPS > state->count)
		state->next = 0;
	while (round.packets < LOOKUPS) {
		size_t at = state->next + round.packets;
		unsigned int burst = RTE_MIN(state->burst, LOOKUPS - round.packets);

		switch (state->lookup) {
		case LPM:
			rte_lpm_lookup_bulk(state->lpm, state->ipv4 + at, short_hops, burst);
			break;
		case FIB_SCALAR:
		case FIB_AVX512:
			rte_fib_lookup_bulk(state->fib, state->ipv4 + at, hops, burst);
			break;
		case FIB6_SCALAR:
		case FIB6_AVX512:
			rte_fib6_lookup_bulk(state->fib6, state->ipv6 + at, hops, burst);
			break;
		default:
			look_up_in_poptrie(state, at, hops, burst);
		}
		__asm__ volatile("" : : "r"(hops), "r"(short_hops) : "memory");
		round.packets += burst;
	}
	state->next += LOOKUPS;
	round.forwarded = round.packets;
	return round;
}

/* Whether an address, or the start of one, lies in a prefix. */
static bool lies_in(const uint8_t *address, const struct prefix *prefix)
{
	int bytes = prefix->length / 8, bits = prefix->length % 8;

	return memcmp(address, prefix->address, bytes) == 0 &&
	       (bits == 0 || (address[bytes] ^ prefix->address[bytes]) >> (8 - bits) == 0);
}

/* Some answers against those of a search through all prefixes: a table that holds half of them would be fast. */
static void check_answers(const struct state *state, const struct prefix *prefixes, size_t count)
{
	uint64_t hops[CHECKED];
	uint32_t short_hops[CHECKED];

	if (state->lookup == LPM)
		rte_lpm_lookup_bulk(state->lpm, state->ipv4, short_hops, CHECKED);
	else if (state->lookup >= POPTRIE)
		look_up_in_poptrie(state, 0, hops, CHECKED);
	else if (is_ipv6(state->lookup))
		rte_fib6_lookup_bulk(state->fib6, state->ipv6, hops, CHECKED);
	else
		rte_fib_lookup_bulk(state->fib, state->ipv4, hops, CHECKED);
	for (size_t i = 0; i < CHECKED; i++) {
		uint64_t numbers = seed, answer = state->lookup == LPM ? short_hops[i] : hops[i], expected = NEXT_HOPS;
		uint8_t address[IPV6_BYTES];
		int longest = -1;

		if (is_ipv6(state->lookup)) {
			memcpy(address, state->ipv6[i], IPV6_BYTES);
		} else {
			uint32_t order = htonl(state->ipv4[i]);

			memcpy(address, &order, sizeof(order));
		}
		for (size_t j = 0; j < count; j++) {
			uint64_t hop = below(&numbers, NEXT_HOPS);

			if (prefixes[j].length >= longest && lies_in(address, &prefixes[j])) {
				longest = prefixes[j].length;
				expected = hop;
			}
		}
		if (state->lookup == LPM) {
			/* Its other bits tell that there is one. */
			bool found = (answer & RTE_LPM_LOOKUP_SUCCESS) != 0;

			answer = found ? answer & 0xffffff : NEXT_HOPS;
		} else if (state->lookup >= POPTRIE) {
			answer = answer == 0 ? NEXT_HOPS : answer - 1;
		}
		if (answer != expected)
			fail("address %zu leads to %" PRIu64 ", not to %" PRIu64, i, answer, expected);
	}
}

/* The prefixes of one family, in the order of the file. */
static size_t read_prefixes(const char *name, bool ipv6, struct prefix *prefixes)
{
	FILE *file = fopen(name, "r");
	char line[128];
	size_t count = 0;

	if (file == NULL)
		fail("%s can't be read", name);
	while (fgets(line, sizeof(line), file) != NULL) {
		char *slash = strchr(line, '/');

		if (slash == NULL)
			fail("no prefix in %s: %s", name, line);
		*slash = '\0';
		if ((strchr(line, ':') != NULL) != ipv6)
			continue;
		if (count == MOST_PREFIXES || inet_pton(ipv6 ? AF_INET6 : AF_INET, line, prefixes[count].address) != 1)
			fail("too many prefixes in %s, or no address: %s", name, line);
		prefixes[count++].length = atoi(slash + 1);
	}
	fclose(file);
	if (count == 0)
		fail("no prefixes in %s", name);
	return count;
}

static uint32_t host_order(const struct prefix *prefix)
{
	uint32_t address;

	memcpy(&address, prefix->address, sizeof(address));
	return ntohl(address);
}

static void make_lpm(struct state *state, const struct prefix *prefixes, size_t count)
{
	struct rte_lpm_config config = {.max_rules = MOST_PREFIXES, .number_tbl8s = 8192};
	uint64_t numbers = seed;

	state->lpm = rte_lpm_create("lpm", rte_socket_id(), &config);
	if (state->lpm == NULL)
		fail("no table: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < count; i++)
		if (rte_lpm_add(state->lpm, host_order(&prefixes[i]), prefixes[i].length, below(&numbers, NEXT_HOPS)) != 0)
			fail("route %zu can't be added", i);
}

static void make_fib(struct state *state, const struct prefix *prefixes, size_t count)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = NEXT_HOPS,
		.max_routes = MOST_PREFIXES,
		/* The smallest that holds as many next hops as ours does. */
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 8192},
	};
	uint64_t numbers = seed;
	enum rte_fib_lookup_type type =
		state->lookup == FIB_AVX512 ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;

	state->fib = rte_fib_create("fib", rte_socket_id(), &config);
	if (state->fib == NULL)
		fail("no table: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < count; i++)
		if (rte_fib_add(state->fib, host_order(&prefixes[i]), prefixes[i].length, below(&numbers, NEXT_HOPS)) != 0)
			fail("route %zu can't be added", i);
	if (rte_fib_select_lookup(state->fib, type) != 0)
		fail("this lookup is not available; for AVX-512 say --force-max-simd-bitwidth=512");
}

static void make_fib6(struct state *state, const struct prefix *prefixes, size_t count)
{
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = NEXT_HOPS,
		.max_routes = MOST_PREFIXES,
		/* With 2 bytes there is no room for as many groups of 8 bits as the full table needs. */
		.trie = {.nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = 1 << 18},
	};
	uint64_t numbers = seed;
	enum rte_fib6_lookup_type type =
		state->lookup == FIB6_AVX512 ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 : RTE_FIB6_LOOKUP_TRIE_SCALAR;

	state->fib6 = rte_fib6_create("fib6", rte_socket_id(), &config);
	if (state->fib6 == NULL)
		fail("no table: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < count; i++)
		if (rte_fib6_add(state->fib6, prefixes[i].address, prefixes[i].length, below(&numbers, NEXT_HOPS)) != 0)
			fail("route %zu can't be added", i);
	if (rte_fib6_select_lookup(state->fib6, type) != 0)
		fail("this lookup is not available; for AVX-512 say --force-max-simd-bitwidth=512");
}

#ifdef WITH_POPTRIE
/* The address as a number, as poptrie wants it. */
static __uint128_t big_endian(const uint8_t *address)
{
	__uint128_t number = 0;

	for (int byte = 0; byte < IPV6_BYTES; byte++)
		number = number << 8 | address[byte];
	return number;
}

static void make_poptrie(struct state *state, const struct prefix *prefixes, size_t count)
{
	uint64_t numbers = seed;

	/* Nodes and leaves, as powers of two, that the full table of either family fits in. */
	state->poptrie = poptrie_init(NULL, 22, 24);
	if (state->poptrie == NULL)
		fail("no memory for the table");
	for (size_t i = 0; i < count; i++) {
		void *hop = (void *)(uintptr_t)(below(&numbers, NEXT_HOPS) + 1);
		int length = prefixes[i].length;
		int failed = state->lookup == POPTRIE
				     ? poptrie_route_add(state->poptrie, host_order(&prefixes[i]), length, hop)
				     : poptrie6_route_add(state->poptrie, big_endian(prefixes[i].address), length, hop);

		if (failed)
			fail("route %zu can't be added", i);
	}
	if (state->lookup == POPTRIE)
		return;
	state->ipv6_numbers = malloc(state->count * sizeof(*state->ipv6_numbers));
	if (state->ipv6_numbers == NULL)
		fail("no memory for addresses");
	for (size_t i = 0; i < state->count; i++)
		state->ipv6_numbers[i] = big_endian(state->ipv6[i]);
}
#else
static void make_poptrie(struct state *state, const struct prefix *prefixes, size_t count)
{
	(void)state, (void)prefixes, (void)count;
}
#endif

static void make_ipv4_addresses(struct state *state, const struct prefix *prefixes, size_t count, bool uniform)
{
	uint64_t numbers = seed;

	state->count = IPV4_ADDRESSES;
	state->ipv4 = malloc(state->count * sizeof(*state->ipv4));
	if (state->ipv4 == NULL)
		fail("no memory for addresses");
	for (size_t i = 0; i < state->count; i++) {
		const struct prefix *prefix = uniform ? NULL : &prefixes[below(&numbers, count)];
		uint32_t bits = random_bits(&numbers);

		/* A shift by all 32 bits is not defined. */
		state->ipv4[i] = uniform ? bits : host_order(prefix) | (uint32_t)((uint64_t)bits & (0xffffffffULL >> prefix->length));
	}
}

static void make_ipv6_addresses(struct state *state, const struct prefix *prefixes, size_t count, bool uniform)
{
	uint64_t numbers = seed;

	state->count = IPV6_ADDRESSES;
	state->ipv6 = malloc(state->count * sizeof(*state->ipv6));
	if (state->ipv6 == NULL)
		fail("no memory for addresses");
	for (size_t i = 0; i < state->count; i++) {
		const struct prefix *prefix = uniform ? NULL : &prefixes[below(&numbers, count)];
		uint64_t high = random_bits(&numbers), low = random_bits(&numbers);

		for (int byte = 0; byte < IPV6_BYTES; byte++) {
			unsigned __int128 bits = (unsigned __int128)high << 64 | low;

			if (uniform) {
				bits = bits >> 3 | (unsigned __int128)1 << 125;
				state->ipv6[i][byte] = bits >> (8 * (IPV6_BYTES - 1 - byte));
			} else {
				int inside = prefix->length - 8 * byte;
				uint8_t mask = inside >= 8 ? 0 : inside <= 0 ? 0xff : 0xff >> inside;

				state->ipv6[i][byte] =
					prefix->address[byte] | ((uint8_t)(bits >> (8 * (IPV6_BYTES - 1 - byte))) & mask);
			}
		}
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"table", required_argument, NULL, 't'},
		{"lookup", required_argument, NULL, 'l'},
		{"addresses", required_argument, NULL, 'a'},
		{"burst", required_argument, NULL, 'n'},
		{NULL, 0, NULL, 0},
	};
	static struct state state = {.lookup = FIB_AVX512, .burst = 64};
	enum locality locality = INSIDE;
	const char *table = NULL;
	struct prefix *prefixes;
	size_t count;
	bool ipv6;
	int option;

	start_dpdk(&argc, &argv);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 't':
			table = optarg;
			break;
		case 'l':
			state.lookup = choice(optarg, lookups, RTE_DIM(lookups), usage);
			break;
		case 'a':
			locality = choice(optarg, localities, RTE_DIM(localities), usage);
			break;
		case 'n':
			state.burst = number(optarg, 1, LARGEST_BURST);
			break;
		default:
			fail("%s", usage);
		}
	}
	if (table == NULL)
		fail("%s", usage);
	ipv6 = is_ipv6(state.lookup);
	prefixes = malloc(MOST_PREFIXES * sizeof(*prefixes));
	if (prefixes == NULL)
		fail("no memory for prefixes");
	count = read_prefixes(table, ipv6, prefixes);
	if (ipv6)
		make_ipv6_addresses(&state, prefixes, count, locality == UNIFORM);
	else
		make_ipv4_addresses(&state, prefixes, count, locality == UNIFORM);
	if (state.lookup == LPM)
		make_lpm(&state, prefixes, count);
	else if (state.lookup >= POPTRIE)
		make_poptrie(&state, prefixes, count);
	else if (ipv6)
		make_fib6(&state, prefixes, count);
	else
		make_fib(&state, prefixes, count);
	check_answers(&state, prefixes, count);
	free(prefixes);
	serve(look_up, NULL, NULL, &state);
	return EXIT_SUCCESS;
}

/*
 * The CRC and the encryption of DOCSIS by libipsec-mb (IMB_CIPHER_DOCSIS_SEC_BPI with IMB_AUTH_DOCSIS_CRC32, both in one pass),
 * as DPDK's crypto_aesni_mb does it for rte_security: jobs one by one or in bursts of 64, without the library's own checks.
 */

#include <intel-ipsec-mb.h>

#include "serve.h"

#define FRAMES 64
#define BURSTS 16
/* As in `warmlane bench docsis-crypto-64`: from one frame to the next, and where it begins. */
#define APART (35 * 64)
#define FRAME_AT 145
#define CLEAR 12
#define CRC 4

enum api { JOB, BURST };

static const char usage[] = "docsis_crypto [EAL options] -- --bytes N [--api job|burst]";

struct key {
	DECLARE_ALIGNED(uint32_t encrypt[15 * 4], 16);
	DECLARE_ALIGNED(uint32_t decrypt[15 * 4], 16);
	uint8_t vector[16];
};

struct job {
	IMB_MGR *manager;
	enum api api;
	unsigned int bytes;
	uint8_t *memory;
	struct key keys[FRAMES];
	uint32_t tags[FRAMES];
};

static void set_up(IMB_JOB *request, struct job *job, unsigned int number)
{
	uint8_t *frame = job->memory + number * APART + FRAME_AT;
	struct key *key = &job->keys[number];

	request->cipher_mode = IMB_CIPHER_DOCSIS_SEC_BPI;
	request->hash_alg = IMB_AUTH_DOCSIS_CRC32;
	request->cipher_direction = IMB_DIR_ENCRYPT;
	request->chain_order = IMB_ORDER_HASH_CIPHER;
	request->enc_keys = key->encrypt;
	request->dec_keys = key->decrypt;
	request->key_len_in_bytes = 16;
	request->iv = key->vector;
	request->iv_len_in_bytes = 16;
	request->src = frame;
	request->dst = frame + CLEAR;
	request->cipher_start_src_offset_in_bytes = CLEAR;
	request->msg_len_to_cipher_in_bytes = job->bytes - CLEAR;
	request->hash_start_src_offset_in_bytes = 0;
	request->msg_len_to_hash_in_bytes = job->bytes - CRC;
	request->auth_tag_output = (uint8_t *)&job->tags[number];
	request->auth_tag_output_len_in_bytes = CRC;
}

static unsigned int one_by_one(struct job *job)
{
	unsigned int done = 0;
	IMB_JOB *request;

	for (unsigned int number = 0; number < FRAMES; number++) {
		request = IMB_GET_NEXT_JOB(job->manager);
		set_up(request, job, number);
		for (request = IMB_SUBMIT_JOB_NOCHECK(job->manager); request != NULL;
		     request = IMB_GET_COMPLETED_JOB(job->manager))
			done += request->status == IMB_STATUS_COMPLETED;
	}
	/* The next burst begins with the same frames: all have to be done. */
	while ((request = IMB_FLUSH_JOB(job->manager)) != NULL)
		done += request->status == IMB_STATUS_COMPLETED;
	return done;
}

static unsigned int in_bursts(struct job *job)
{
	IMB_JOB *requests[FRAMES];
	unsigned int done = 0, count;

	if (IMB_GET_NEXT_BURST(job->manager, FRAMES, requests) != FRAMES)
		fail("no space for a burst");
	for (unsigned int number = 0; number < FRAMES; number++)
		set_up(requests[number], job, number);
	count = IMB_SUBMIT_BURST_NOCHECK(job->manager, FRAMES, requests);
	do {
		for (unsigned int number = 0; number < count; number++)
			done += requests[number]->status == IMB_STATUS_COMPLETED;
		count = done < FRAMES ? IMB_FLUSH_BURST(job->manager, FRAMES, requests) : 0;
	} while (count > 0);
	return done;
}

static struct round protect(void *context)
{
	struct job *job = context;
	struct round round = {.packets = BURSTS * FRAMES};

	for (unsigned int burst = 0; burst < BURSTS; burst++)
		round.forwarded += job->api == JOB ? one_by_one(job) : in_bursts(job);
	return round;
}

/* The first case of DPDK's test_cryptodev_security_docsis_test_vectors.h, without the MAC header. */
static void check(struct job *job)
{
	static const uint8_t secret[16] = {0x00, 0x00, 0x00, 0x00, 0xaa, 0xbb, 0xcc, 0xdd,
					   0xee, 0xff, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55};
	static const uint8_t clear[18] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x06, 0x05,
					  0x04, 0x03, 0x02, 0x01, 0x08, 0x00};
	static const uint8_t expected[6] = {0x7a, 0xf0, 0x61, 0xf8, 0x63, 0x42};
	struct key key = job->keys[0];
	unsigned int bytes = job->bytes;
	uint8_t *frame = job->memory + FRAME_AT;

	IMB_AES_KEYEXP_128(job->manager, secret, job->keys[0].encrypt, job->keys[0].decrypt);
	memset(job->keys[0].vector, 0x11, sizeof(key.vector));
	memcpy(frame, clear, sizeof(clear));
	job->bytes = sizeof(clear);
	set_up(IMB_GET_NEXT_JOB(job->manager), job, 0);
	if (IMB_SUBMIT_JOB_NOCHECK(job->manager) == NULL && IMB_FLUSH_JOB(job->manager) == NULL)
		fail("the first frame is not done");
	if (memcmp(frame + CLEAR, expected, sizeof(expected)) != 0)
		fail("libipsec-mb encrypts otherwise than DPDK's vectors say");
	job->keys[0] = key;
	job->bytes = bytes;
}

int main(int count, char **arguments)
{
	static const char *const apis[] = {"job", "burst"};
	static const struct option options[] = {
		{"bytes", required_argument, NULL, 'b'},
		{"api", required_argument, NULL, 'a'},
		{NULL, 0, NULL, 0},
	};
	static struct job job = {.api = BURST};
	int option;

	start_dpdk(&count, &arguments);
	while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
		switch (option) {
		case 'b':
			job.bytes = number(optarg, 18, 2000);
			break;
		case 'a':
			job.api = choice(optarg, apis, RTE_DIM(apis), usage);
			break;
		default:
			fail("%s", usage);
		}
	}
	if (job.bytes == 0)
		fail("%s", usage);
	job.manager = alloc_mb_mgr(0);
	job.memory = aligned_alloc(64, FRAMES * APART);
	if (job.manager == NULL || job.memory == NULL)
		fail("out of memory");
	/* The best that the processor has. */
	init_mb_mgr_auto(job.manager, NULL);
	memset(job.memory, 0, FRAMES * APART);
	for (unsigned int number = 0; number < FRAMES; number++) {
		uint8_t secret[16];

		memset(secret, number, sizeof(secret));
		memset(job.keys[number].vector, ~number, sizeof(job.keys[number].vector));
		IMB_AES_KEYEXP_128(job.manager, secret, job.keys[number].encrypt, job.keys[number].decrypt);
	}
	check(&job);
	serve(protect, NULL, NULL, &job);
	return 0;
}

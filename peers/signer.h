/*
 * What `warmlane gen` writes into each packet besides headers: a random source address, both checksums, and at the end of
 * the frame a signature of 16 bytes, in which are a number, the time, and what makes its sum always the same.
 *
 * As our side, it computes all this for a burst in loops that the compiler makes vectors of, and then writes it.
 */

#ifndef SIGNER_H
#define SIGNER_H

#include <string.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include "serve.h"

#define SIGNER_BURST 256
/* A frame of 64 bytes without its check sequence. */
#define SIGNED_BYTES 60
#define SIGNED_SUM 0x574c
#define SEQUENCE_BITS 40
#define NETWORK RTE_IPV4(198, 18, 0, 0)
#define SOURCES 65536

struct signed_frame {
	struct rte_ether_hdr ethernet;
	struct rte_ipv4_hdr ipv4;
	struct rte_udp_hdr udp;
	uint16_t filler;
	uint64_t signature[2];
} __attribute__((packed, aligned(2)));

_Static_assert(sizeof(struct signed_frame) == SIGNED_BYTES, "the signature is at the end");

struct signer {
	uint64_t random, sequence;
	/* The sums that don't depend on the source. */
	uint32_t ipv4_base, udp_base;
	struct signed_frame frame;
};

/* The sum of a word's 16-bit words. */
static inline uint32_t word_sum(uint64_t word)
{
	uint64_t halves = (word >> 16 & 0x0000ffff0000ffff) + (word & 0x0000ffff0000ffff);

	return (halves >> 32) + (halves & 0xffffffff);
}

/* The upper half has the sum of both, with what was carried. */
static inline uint16_t folded(uint32_t sum)
{
	return (sum + (sum << 16 | sum >> 16)) >> 16;
}

static inline uint32_t bytes_sum(const void *bytes, unsigned int length)
{
	uint32_t sum = 0;

	for (unsigned int i = 0; i < length; i += 2) {
		uint16_t word;

		memcpy(&word, (const char *)bytes + i, sizeof(word));
		sum += rte_be_to_cpu_16(word);
	}
	return sum;
}

static inline void begin_signing(struct signer *signer)
{
	struct signed_frame *frame = &signer->frame;
	uint16_t length = SIGNED_BYTES - sizeof(frame->ethernet) - sizeof(frame->ipv4);

	memset(frame, 0, sizeof(*frame));
	frame->ethernet.src_addr.addr_bytes[0] = frame->ethernet.dst_addr.addr_bytes[0] = 2;
	frame->ethernet.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	frame->ipv4.version_ihl = RTE_IPV4_VHL_DEF;
	frame->ipv4.time_to_live = 64;
	frame->ipv4.next_proto_id = IPPROTO_UDP;
	frame->ipv4.total_length = rte_cpu_to_be_16(length + sizeof(frame->ipv4));
	frame->ipv4.dst_addr = rte_cpu_to_be_32(RTE_IPV4(198, 19, 0, 1));
	frame->udp.src_port = rte_cpu_to_be_16(1024);
	frame->udp.dst_port = rte_cpu_to_be_16(9);
	frame->udp.dgram_len = rte_cpu_to_be_16(length);
	signer->random = 1;
	signer->ipv4_base = folded(bytes_sum(&frame->ipv4, sizeof(frame->ipv4)));
	signer->udp_base = folded(bytes_sum(&frame->ipv4.dst_addr, 4) + IPPROTO_UDP + length +
				  bytes_sum(&frame->udp, sizeof(frame->udp)) + SIGNED_SUM);
}

/* wyrand: one multiplication. */
static inline uint64_t drawn(struct signer *signer)
{
	unsigned __int128 product;

	signer->random += 0xa0761d6478bd642f;
	product = (unsigned __int128)signer->random * (signer->random ^ 0xe7037ed1a0b428db);
	return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Fills packets whose headers, but not their data, are written. */
static inline void sign(struct signer *signer, struct rte_mbuf **packets, unsigned int count)
{
	uint32_t sources[SIGNER_BURST];
	uint16_t ipv4[SIGNER_BURST], udp[SIGNER_BURST];
	uint64_t first[SIGNER_BURST], second[SIGNER_BURST];
	uint64_t random = drawn(signer), time = rte_rdtsc() << 16, sequence = signer->sequence;
	uint32_t start = random, also = random >> 32, time_sum = word_sum(time) + (uint16_t)~SIGNED_SUM;
	uint32_t ipv4_base = signer->ipv4_base, udp_base = signer->udp_base;

	for (unsigned int i = 0; i < count; i++) {
		uint32_t value = start + i * 0x9e3779b9;

		value = (value ^ value >> 16) * 0x7feb352d;
		value = (value ^ value >> 15) * 0x846ca68b;
		value ^= value >> 16 ^ also;
		sources[i] = NETWORK + (uint32_t)((uint64_t)value * SOURCES >> 32);
	}
	for (unsigned int i = 0; i < count; i++) {
		uint32_t sum = (sources[i] >> 16) + (sources[i] & 0xffff);
		uint16_t checksum = ~folded(udp_base + sum);

		ipv4[i] = rte_cpu_to_be_16((uint16_t)~folded(ipv4_base + sum));
		udp[i] = rte_cpu_to_be_16(checksum == 0 ? 0xffff : checksum);
	}
	for (unsigned int i = 0; i < count; i++) {
		uint64_t word = (sequence + i) & ((UINT64_C(1) << SEQUENCE_BITS) - 1);

		first[i] = rte_cpu_to_be_64(word);
		second[i] = rte_cpu_to_be_64(time | (uint16_t)~folded(time_sum + word_sum(word)));
		sources[i] = rte_cpu_to_be_32(sources[i]);
	}
	for (unsigned int i = 0; i < count; i++) {
		struct signed_frame *frame = rte_pktmbuf_mtod(packets[i], struct signed_frame *);

		rte_memcpy(frame, &signer->frame, sizeof(*frame));
		frame->ipv4.src_addr = sources[i];
		frame->ipv4.hdr_checksum = ipv4[i];
		frame->udp.dgram_cksum = udp[i];
		frame->signature[0] = first[i];
		frame->signature[1] = second[i];
	}
	signer->sequence += count;
}

/* Whether packets are right, as DPDK's own functions say. */
static inline void check_signed(struct rte_mempool *pool)
{
	struct signer signer = {0};
	struct rte_mbuf *packets[SIGNER_BURST];

	begin_signing(&signer);
	if (rte_pktmbuf_alloc_bulk(pool, packets, SIGNER_BURST) != 0)
		fail("the pool is empty");
	sign(&signer, packets, SIGNER_BURST);
	for (unsigned int i = 0; i < SIGNER_BURST; i++) {
		struct signed_frame *frame = rte_pktmbuf_mtod(packets[i], struct signed_frame *);

		if (rte_ipv4_udptcp_cksum_verify(&frame->ipv4, &frame->udp) != 0 ||
		    folded(bytes_sum(&frame->ipv4, sizeof(frame->ipv4))) != 0xffff ||
		    folded(bytes_sum(frame->signature, sizeof(frame->signature))) != SIGNED_SUM ||
		    rte_be_to_cpu_64(frame->signature[0]) != i)
			fail("packet %u is wrong", i);
	}
	rte_pktmbuf_free_bulk(packets, SIGNER_BURST);
}

#endif

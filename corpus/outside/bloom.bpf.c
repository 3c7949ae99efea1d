// A Bloom filter of 2^16 bits with four hashes of each 8-byte key: adds len keys and asks for twice as many. Counts the members
// that it misses, which must be none, and the others that it takes for members.
// build: -fno-builtin
#include "outside.h"

#define BITS 65536

static u32 fnv(const u8 *key, u32 seed)
{
	u32 hash = 0x811c9dc5 ^ seed;

	for (int i = 0; i < 8; i++)
		hash = (hash ^ key[i]) * 0x01000193;
	return hash ^ hash >> 15;
}

static void add(u8 *filter, const u8 *key)
{
	u32 a = fnv(key, 0), b = fnv(key, 0x9747b28c) | 1;

	for (int i = 0; i < 4; i++, a += b)
		filter[a % BITS / 8] |= 1 << a % 8;
}

static int has(const u8 *filter, const u8 *key)
{
	u32 a = fnv(key, 0), b = fnv(key, 0x9747b28c) | 1;

	for (int i = 0; i < 4; i++, a += b)
		if (!(filter[a % BITS / 8] >> a % 8 & 1))
			return 0;
	return 1;
}

WORKLOAD u64 prog(struct block *block)
{
	u8 *filter = block->scratch;
	u32 n = block->len, i, missed = 0, wrong = 0, bits = 0;

	memset(filter, 0, BITS / 8);
	for (i = 0; i < n; i++)
		add(filter, block->input + 8 * i);
	for (i = 0; i < n; i++) {
		missed += !has(filter, block->input + 8 * i);
		wrong += has(filter, block->input + 8 * (n + i));
	}
	for (i = 0; i < BITS; i++)
		bits += filter[i / 8] >> i % 8 & 1;
	return (u64)missed << 48 | (u64)wrong << 32 | bits;
}

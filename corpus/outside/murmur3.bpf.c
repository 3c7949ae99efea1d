// MurmurHash3_x86_32 with seed 0 of each of the 16-byte records in len bytes, then of all bytes.
// build: -fno-builtin
#include "outside.h"

static u32 scramble(u32 k)
{
	return rotl32(k * 0xcc9e2d51, 15) * 0x1b873593;
}

static u32 murmur3(const u8 *key, u32 len, u32 h)
{
	u32 i, k = 0;

	for (i = len / 4; i; i--, key += 4)
		h = rotl32(h ^ scramble(load_le32(key)), 13) * 5 + 0xe6546b64;
	for (i = len & 3; i; i--)
		k = k << 8 | key[i - 1];
	h ^= scramble(k);
	h ^= len;
	h ^= h >> 16;
	h *= 0x85ebca6b;
	h ^= h >> 13;
	h *= 0xc2b2ae35;
	return h ^ h >> 16;
}

WORKLOAD u64 prog(struct block *block)
{
	u64 sum = 0;
	u32 at;

	for (at = 0; at + 16 <= block->len; at += 16)
		sum = sum * 31 + murmur3(block->input + at, 16, 0);
	return sum << 32 | murmur3(block->input, block->len, 0);
}

// XXH64 with seed 0 over len bytes, from its specification.
// build: -fno-builtin
#include "outside.h"

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL

static u64 round(u64 acc, u64 lane)
{
	return rotl64(acc + lane * P2, 31) * P1;
}

static u64 merge(u64 acc, u64 lane)
{
	return (acc ^ round(0, lane)) * P1 + P4;
}

static u64 xxh64(const u8 *p, u64 len, u64 seed)
{
	const u8 *end = p + len;
	u64 h;

	if (len >= 32) {
		u64 v[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 };

		do {
			for (int i = 0; i < 4; i++, p += 8)
				v[i] = round(v[i], load_le64(p));
		} while (end - p >= 32);
		h = rotl64(v[0], 1) + rotl64(v[1], 7) + rotl64(v[2], 12) + rotl64(v[3], 18);
		for (int i = 0; i < 4; i++)
			h = merge(h, v[i]);
	} else {
		h = seed + P5;
	}
	h += len;
	for (; end - p >= 8; p += 8)
		h = rotl64(h ^ round(0, load_le64(p)), 27) * P1 + P4;
	if (end - p >= 4) {
		h = rotl64(h ^ load_le32(p) * P1, 23) * P2 + P3;
		p += 4;
	}
	for (; p < end; p++)
		h = rotl64(h ^ *p * P5, 11) * P1;
	h ^= h >> 33;
	h *= P2;
	h ^= h >> 29;
	h *= P3;
	return h ^ h >> 32;
}

WORKLOAD u64 prog(struct block *block)
{
	return xxh64(block->input, block->len, 0);
}

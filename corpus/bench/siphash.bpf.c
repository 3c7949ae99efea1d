// SipHash-2-4 of len bytes, a multiple of 8: rotates and adds on four words. The key is the first 16 bytes.
#include "block.h"

#define ROUND                              \
	do {                               \
		v0 += v1;                  \
		v1 = rotl64(v1, 13) ^ v0;  \
		v0 = rotl64(v0, 32);       \
		v2 += v3;                  \
		v3 = rotl64(v3, 16) ^ v2;  \
		v0 += v3;                  \
		v3 = rotl64(v3, 21) ^ v0;  \
		v2 += v1;                  \
		v1 = rotl64(v1, 17) ^ v2;  \
		v2 = rotl64(v2, 32);       \
	} while (0)

KERNEL u64 prog(struct block *block)
{
	u64 k0 = block->input64[0], k1 = block->input64[1], words = block->len / 8, i, m;
	u64 v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
	u64 v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;

	if (words > AREA / 8 - 2)
		return 0;
	for (i = 0; i < words; i++) {
		m = block->input64[i + 2];
		v3 ^= m;
		ROUND;
		ROUND;
		v0 ^= m;
	}
	m = block->len << 56;
	v3 ^= m;
	ROUND;
	ROUND;
	v0 ^= m;
	v2 ^= 0xff;
	ROUND;
	ROUND;
	ROUND;
	ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

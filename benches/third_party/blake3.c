// The portable compression function of blake3: the chunks of len bytes, their chaining values added up.
#include <third_party.h>

#define BLAKE3_NO_SSE2
#define BLAKE3_NO_SSE41
#define BLAKE3_NO_AVX2
#define BLAKE3_NO_AVX512
#define BLAKE3_USE_NEON 0
#include "c/blake3_portable.c"
THIRD_PARTY_END

WORKLOAD uint64_t prog(struct block *block)
{
	uint64_t sum = 0;

	for (uint64_t at = 0; at + BLAKE3_CHUNK_LEN <= block->len; at += BLAKE3_CHUNK_LEN) {
		uint32_t cv[8];

		memcpy(cv, IV, sizeof(cv));
		for (uint32_t i = 0; i < BLAKE3_CHUNK_LEN / BLAKE3_BLOCK_LEN; i++) {
			uint8_t flags = (i == 0 ? CHUNK_START : 0) | (i == 15 ? CHUNK_END : 0);

			blake3_compress_in_place_portable(cv, block->input + at + BLAKE3_BLOCK_LEN * i, BLAKE3_BLOCK_LEN,
							  at / BLAKE3_CHUNK_LEN, flags);
		}
		for (int i = 0; i < 8; i++)
			sum = sum * 31 + cv[i];
	}
	return sum;
}

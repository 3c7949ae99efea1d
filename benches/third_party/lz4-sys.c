// LZ4 of lz4-sys: compresses len bytes, decompresses them, and compares.
#include <third_party.h>

#define LZ4_STATIC_LINKING_ONLY
#define LZ4_memcpy(to, from, n) memcpy(to, from, n)
#define LZ4_memmove(to, from, n) memmove(to, from, n)
#include "liblz4/lib/lz4.c"
THIRD_PARTY_END

static LZ4_stream_t state;

WORKLOAD uint64_t prog(struct block *block)
{
	char *packed = (char *)heap, *back = packed + AREA + AREA / 2;
	int len = block->len, size;

	size = LZ4_compress_fast_extState(&state, (const char *)block->input, packed, len, AREA + AREA / 2, 1);
	if (LZ4_decompress_safe(packed, back, size, AREA) != len || memcmp(back, block->input, len))
		return 0;
	return digest(packed, size) ^ size;
}

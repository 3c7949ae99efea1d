// bzip2 of bzip2-sys: compresses len bytes, decompresses them, and compares.
#include <third_party.h>

#define BZ_NO_STDIO
/* BPF has five arguments; functions with more have to go. */
#define __inline__ inline __attribute__((always_inline))
#include "bzip2-1.0.8/bzlib.h"
#include "bzip2-1.0.8/blocksort.c"
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#include "bzip2-1.0.8/huffman.c"
#pragma clang attribute pop
#include "bzip2-1.0.8/crctable.c"
#include "bzip2-1.0.8/randtable.c"
#include "bzip2-1.0.8/compress.c"
#include "bzip2-1.0.8/decompress.c"
#include "bzip2-1.0.8/bzlib.c"

void bz_internal_error(int code)
{
	(void)code;
	abort();
}
THIRD_PARTY_END

static void *take(void *opaque, int n, int size)
{
	(void)opaque;
	return malloc((size_t)n * size);
}

static void give(void *opaque, void *p)
{
	(void)opaque;
	free(p);
}

WORKLOAD uint64_t prog(struct block *block)
{
	bz_stream *stream;
	uint32_t size;
	char *packed;

	free_all();
	stream = calloc(1, sizeof(*stream));
	packed = malloc(AREA);
	stream->bzalloc = take;
	stream->bzfree = give;
	if (BZ2_bzCompressInit(stream, 1, 0, 0) != BZ_OK)
		return 1;
	stream->next_in = (char *)block->input;
	stream->avail_in = block->len;
	stream->next_out = packed;
	stream->avail_out = AREA;
	if (BZ2_bzCompress(stream, BZ_FINISH) != BZ_STREAM_END)
		return 2;
	size = stream->total_out_lo32;
	if (BZ2_bzDecompressInit(stream, 0, 0) != BZ_OK)
		return 3;
	stream->next_in = packed;
	stream->avail_in = size;
	stream->next_out = (char *)block->scratch;
	stream->avail_out = AREA;
	if (BZ2_bzDecompress(stream) != BZ_STREAM_END || memcmp(block->scratch, block->input, block->len))
		return 4;
	return digest(packed, size);
}

// Compression of zlib in libz-sys, level 6: len bytes to a raw DEFLATE stream.
#include <third_party.h>

#define Z_SOLO
#define HAVE_MEMCPY
#include "src/zlib/deflate.c"
#include "src/zlib/trees.c"
#include "src/zlib/adler32.c"
#include "src/zlib/crc32.c"
THIRD_PARTY_END

char *const z_errmsg[10];

static voidpf take(voidpf opaque, uInt n, uInt size)
{
	(void)opaque;
	return malloc((size_t)n * size);
}

static void give(voidpf opaque, voidpf p)
{
	(void)opaque;
	free(p);
}

WORKLOAD uint64_t prog(struct block *block)
{
	z_stream *stream;

	free_all();
	stream = calloc(1, sizeof(*stream));
	stream->zalloc = take;
	stream->zfree = give;
	if (deflateInit2(stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return 1;
	stream->next_in = block->input;
	stream->avail_in = block->len;
	stream->next_out = block->scratch;
	stream->avail_out = AREA;
	if (deflate(stream, Z_FINISH) != Z_STREAM_END)
		return 2;
	return digest(block->scratch, stream->total_out);
}

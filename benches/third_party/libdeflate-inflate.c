// Decompression of libdeflate in libdeflate-sys: a raw DEFLATE stream of len bytes.
#include <third_party.h>

/* Nothing for particular processors. */
#undef __x86_64__
#undef __aarch64__
/* BPF has five arguments; functions with more have to go. */
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#include "libdeflate/lib/deflate_decompress.c"
#pragma clang attribute pop
THIRD_PARTY_END

static struct libdeflate_decompressor decompressor;

WORKLOAD uint64_t prog(struct block *block)
{
	size_t size;

	if (libdeflate_deflate_decompress_ex(&decompressor, block->input, block->len, block->scratch, AREA - 64, NULL, &size))
		return 1;
	return digest(block->scratch, size);
}

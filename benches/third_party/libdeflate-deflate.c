// Compression of libdeflate in libdeflate-sys, level 6: len bytes to a raw DEFLATE stream.
#include <third_party.h>

/* Nothing for particular processors. */
#undef __x86_64__
#undef __aarch64__
/* BPF has five arguments; functions with more have to go. */
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#include "libdeflate/lib/deflate_compress.c"
#include "libdeflate/lib/utils.c"
#pragma clang attribute pop
THIRD_PARTY_END

WORKLOAD uint64_t prog(struct block *block)
{
	struct libdeflate_compressor *compressor;
	size_t size;

	free_all();
	compressor = libdeflate_alloc_compressor(6);
	if (!compressor)
		return 1;
	size = libdeflate_deflate_compress(compressor, block->input, block->len, block->scratch, AREA);
	return digest(block->scratch, size) ^ size;
}

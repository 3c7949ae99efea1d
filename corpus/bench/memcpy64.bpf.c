// Copies len bytes in words of 64 bits and folds what it copied: loads and stores and nothing else.
// build: -fno-builtin
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u64 words = block->len / 8, i;

	if (words > AREA / 8 || !words)
		return 0;
#pragma clang loop unroll_count(4)
	for (i = 0; i < words; i++)
		block->scratch64[i] = block->input64[i];
	return block->scratch64[0] ^ block->scratch64[words / 2] ^ block->scratch64[words - 1];
}

// Every occurrence of a pattern of six bytes in len bytes of text over four letters: early exits, short loops.
// The pattern is the first six bytes of the text.
#include "block.h"

#define PATTERN 6

KERNEL u64 prog(struct block *block)
{
	const u8 *text = block->input;
	u32 n = block->len, at, i;
	u64 found = 0, hash = 0;

	if (n < PATTERN || n > AREA)
		return 0;
	for (at = 0; at <= n - PATTERN; at++) {
#pragma clang loop unroll(disable)
		for (i = 0; i < PATTERN; i++)
			if (text[at + i] != text[i])
				break;
		if (i == PATTERN) {
			found++;
			hash = hash * 17 + at;
		}
	}
	return found << 48 ^ hash;
}

// Division and remainder of 64-bit and 32-bit words by values known only at run time.
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u64 n = block->len, hash = 1, i;

	if (n >= AREA / 8)
		return 0;
	for (i = 0; i < n; i++) {
		u64 a = block->input64[i], b = block->input64[i + 1] >> (i & 31) | 1;

		hash = hash * 31 + a / b;
		hash = hash * 31 + a % b;
		hash = hash * 31 + (u32)a / ((u32)(b >> 7) | 1);
	}
	return hash;
}

// Integer mixing in 64 bits: shifts, rotates, multiplies and adds, no memory in the loop.
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u64 n = block->len, a = block->input64[0], b = block->input64[1], i;

	for (i = 0; i < n; i++) {
		a ^= a >> 29;
		a *= 0xbf58476d1ce4e5b9ULL;
		b = rotl64(b, 23) + a;
		a ^= b >> 32;
		b = (b - i) * 5;
		a += b | i;
		b ^= a << 13;
	}
	return a ^ b;
}

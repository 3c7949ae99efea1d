// Integer mixing in 32 bits: every result must be cut to the lower half.
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u32 n = block->len, a = block->input32[0], b = block->input32[1], i;

	for (i = 0; i < n; i++) {
		a ^= a >> 16;
		a *= 0x85ebca6bU;
		b = rotl32(b, 13) + a;
		a ^= b >> 15;
		b = (b - i) * 5;
		a += b | i;
		b ^= a << 7;
	}
	return (u64)a << 32 | b;
}

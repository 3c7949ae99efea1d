// Product of two square matrices of len x len 64-bit words, len at most 64; returns a hash of the result.
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u64 n = block->len, hash = 0, row, column, k;
	const u64 *a = block->input64, *b = block->input64 + 4096;

	if (n > 64)
		return 0;
	for (row = 0; row < n; row++) {
		for (column = 0; column < n; column++) {
			u64 sum = 0;

			for (k = 0; k < n; k++)
				sum += a[row * n + k] * b[k * n + column];
			block->scratch64[row * n + column] = sum;
		}
	}
	for (k = 0; k < n * n; k++)
		hash = hash * 31 + block->scratch64[k];
	return hash;
}

// Sieve of Eratosthenes: byte stores with a stride, then a scan. Counts and sums the primes below len.
// build: -fno-builtin
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u32 n = block->len, i, k;
	u64 count = 0, sum = 0;

	if (n > AREA)
		return 0;
	for (i = 0; i < n; i++)
		block->scratch[i] = 1;
	for (i = 2; i * i < n; i++) {
		if (!block->scratch[i])
			continue;
		for (k = i * i; k < n; k += i)
			block->scratch[k] = 0;
	}
	for (i = 2; i < n; i++) {
		if (block->scratch[i]) {
			count++;
			sum += i;
		}
	}
	return count << 48 ^ sum;
}

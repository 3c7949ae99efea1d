// Sorts len 32-bit numbers by their bytes, from the lowest, counting each byte first.
// build: -fno-builtin
#include "outside.h"

WORKLOAD u64 prog(struct block *block)
{
	u32 *from = block->scratch32, *to = from + AREA / 16, *count = to + AREA / 16, *other, n = block->len, i, shift;

	memcpy(from, block->input, 4 * n);
	for (shift = 0; shift < 32; shift += 8) {
		u32 sum = 0;

		memset(count, 0, 256 * sizeof(*count));
		for (i = 0; i < n; i++)
			count[from[i] >> shift & 0xff]++;
		for (i = 0; i < 256; i++) {
			u32 here = count[i];

			count[i] = sum;
			sum += here;
		}
		for (i = 0; i < n; i++)
			to[count[from[i] >> shift & 0xff]++] = from[i];
		other = from;
		from = to;
		to = other;
	}
	for (i = 1; i < n; i++)
		if (from[i - 1] > from[i])
			return i;
	return digest(from, 4 * n);
}

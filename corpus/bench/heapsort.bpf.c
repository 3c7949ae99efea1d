// Heap sort of len 64-bit words: data-dependent branches and loads. Hashes the sorted order.
// build: -fno-builtin
#include "block.h"

static inline __attribute__((always_inline)) void sift(u64 *heap, u64 root, u64 n)
{
	u64 value = heap[root], child;

	while ((child = 2 * root + 1) < n) {
		if (child + 1 < n && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= value)
			break;
		heap[root] = heap[child];
		root = child;
	}
	heap[root] = value;
}

KERNEL u64 prog(struct block *block)
{
	u64 *heap = block->scratch64, n = block->len, hash = 0, i;

	if (n < 2 || n > AREA / 8)
		return 0;
	for (i = 0; i < n; i++)
		heap[i] = block->input64[i];
	for (i = n / 2; i-- > 0;)
		sift(heap, i, n);
	for (i = n - 1; i > 0; i--) {
		u64 top = heap[0];

		heap[0] = heap[i];
		heap[i] = top;
		sift(heap, 0, i);
	}
	for (i = 0; i < n; i++)
		hash = hash * 31 + heap[i];
	return hash;
}

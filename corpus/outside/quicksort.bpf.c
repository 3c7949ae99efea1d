// Sorts len 32-bit numbers: quicksort with the median of three and a stack of its own, insertion sort for short parts.
// build: -fno-builtin
#include "outside.h"

static void swap(u32 *a, u32 *b)
{
	u32 t = *a;

	*a = *b;
	*b = t;
}

static void insertion_sort(u32 *a, int n)
{
	for (int i = 1; i < n; i++) {
		u32 value = a[i];
		int j = i;

		for (; j > 0 && a[j - 1] > value; j--)
			a[j] = a[j - 1];
		a[j] = value;
	}
}

static int partition(u32 *a, int n)
{
	u32 pivot;
	int i = 0, j = n - 1;

	if (a[n / 2] < a[0])
		swap(a + n / 2, a);
	if (a[n - 1] < a[0])
		swap(a + n - 1, a);
	if (a[n - 1] < a[n / 2])
		swap(a + n - 1, a + n / 2);
	pivot = a[n / 2];
	for (;;) {
		while (a[i] < pivot)
			i++;
		while (a[j] > pivot)
			j--;
		if (i >= j)
			return j + 1;
		swap(a + i++, a + j--);
	}
}

static void quicksort(u32 *a, int n)
{
	struct {
		int from, to;
	} stack[32];
	int depth = 0, from = 0, to = n, middle;

	for (;;) {
		while (to - from > 12) {
			middle = from + partition(a + from, to - from);
			if (middle - from > to - middle) {
				stack[depth].from = from;
				stack[depth++].to = middle;
				from = middle;
			} else {
				stack[depth].from = middle;
				stack[depth++].to = to;
				to = middle;
			}
		}
		insertion_sort(a + from, to - from);
		if (!depth)
			return;
		from = stack[--depth].from;
		to = stack[depth].to;
	}
}

WORKLOAD u64 prog(struct block *block)
{
	u32 *a = block->scratch32, n = block->len;

	memcpy(a, block->input, 4 * n);
	quicksort(a, n);
	for (u32 i = 1; i < n; i++)
		if (a[i - 1] > a[i])
			return i;
	return digest(a, 4 * n);
}

// Sorts len records of a 32-bit key and its position, from the bottom up, so that equal keys keep their order.
// build: -fno-builtin
#include "outside.h"

struct record {
	u32 key, position;
};

static void merge(struct record *to, const struct record *a, const struct record *b, const struct record *end)
{
	const struct record *middle = b;

	while (a < middle || b < end) {
		if (b == end || (a < middle && a->key <= b->key))
			*to++ = *a++;
		else
			*to++ = *b++;
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct record *from = (struct record *)block->scratch, *to = from + AREA / 16, *other;
	u32 n = block->len, width, at, i;
	u64 hash = 0;

	for (i = 0; i < n; i++) {
		from[i].key = block->input16[i] & 0xfff;
		from[i].position = i;
	}
	for (width = 1; width < n; width *= 2) {
		for (at = 0; at < n; at += 2 * width) {
			u32 middle = at + width < n ? at + width : n, end = middle + width < n ? middle + width : n;

			merge(to + at, from + at, from + middle, from + end);
		}
		other = from;
		from = to;
		to = other;
	}
	for (i = 0; i < n; i++) {
		if (i && from[i - 1].key == from[i].key && from[i - 1].position > from[i].position)
			return i;
		hash = hash * 31 + from[i].position;
	}
	return hash;
}

// Conway's Game of Life on a torus of 64 by 64 cells, a byte each, for len generations.
// build: -fno-builtin
#include "outside.h"

#define SIDE 64

static void generation(u8 *to, const u8 *from)
{
	for (int y = 0; y < SIDE; y++) {
		for (int x = 0; x < SIDE; x++) {
			int neighbours = 0;

			for (int dy = -1; dy <= 1; dy++)
				for (int dx = -1; dx <= 1; dx++)
					if (dy || dx)
						neighbours += from[(y + dy + SIDE) % SIDE * SIDE + (x + dx + SIDE) % SIDE];
			to[y * SIDE + x] = neighbours == 3 || (neighbours == 2 && from[y * SIDE + x]);
		}
	}
}

WORKLOAD u64 prog(struct block *block)
{
	u8 *from = block->scratch, *to = from + SIDE * SIDE, *other;
	u32 i, alive = 0;

	for (i = 0; i < SIDE * SIDE; i++)
		from[i] = block->input[i] & 1;
	for (i = 0; i < block->len; i++) {
		generation(to, from);
		other = from;
		from = to;
		to = other;
	}
	for (i = 0; i < SIDE * SIDE; i++)
		alive += from[i];
	return digest(from, SIDE * SIDE) << 12 | alive;
}

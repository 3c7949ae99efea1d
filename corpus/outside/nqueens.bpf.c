// In how many ways len queens stand on a board of that side without a threat, by recursion over rows.
// build: -fno-builtin
#include "outside.h"

struct board {
	u32 side;
	u8 column[32], up[64], down[64];
};

static u64 solve(struct board *b, u32 row)
{
	u64 found = 0;

	if (row == b->side)
		return 1;
	for (u32 x = 0; x < b->side; x++) {
		u32 up = row + x, down = row + b->side - x;

		if (b->column[x] || b->up[up] || b->down[down])
			continue;
		b->column[x] = b->up[up] = b->down[down] = 1;
		found += solve(b, row + 1);
		b->column[x] = b->up[up] = b->down[down] = 0;
	}
	return found;
}

WORKLOAD u64 prog(struct block *block)
{
	struct board *b = (struct board *)block->scratch;

	memset(b, 0, sizeof(*b));
	b->side = block->len;
	return solve(b, 0);
}

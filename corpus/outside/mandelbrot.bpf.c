// The Mandelbrot set with 24 bits behind the point, len by len points, up to 64 iterations each.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

#define FRACTION 24
#define ONE (1LL << FRACTION)

static s64 multiply(s64 a, s64 b)
{
	return a * b >> FRACTION;
}

static u32 iterations(s64 cx, s64 cy)
{
	s64 x = 0, y = 0, xx, yy;
	u32 n;

	for (n = 0; n < 64; n++) {
		xx = multiply(x, x);
		yy = multiply(y, y);
		if (xx + yy > 4 * ONE)
			break;
		y = 2 * multiply(x, y) + cy;
		x = xx - yy + cx;
	}
	return n;
}

WORKLOAD u64 prog(struct block *block)
{
	s64 side = block->len;
	u64 hash = 0;

	for (s64 row = 0; row < side; row++)
		for (s64 column = 0; column < side; column++)
			hash = hash * 31 + iterations(3 * ONE * column / side - 2 * ONE, 2 * ONE * row / side - ONE);
	return hash;
}

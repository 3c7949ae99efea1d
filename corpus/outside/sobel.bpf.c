// Edges of a grey image of 128 pixels a line and len lines by Sobel's operator, after a blur of three by three pixels.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

#define WIDTH 128

static void blur(u8 *to, const u8 *from, int height)
{
	static const u8 weights[3][3] = { { 1, 2, 1 }, { 2, 4, 2 }, { 1, 2, 1 } };

	for (int y = 1; y < height - 1; y++)
		for (int x = 1; x < WIDTH - 1; x++) {
			int sum = 8;

			for (int j = -1; j <= 1; j++)
				for (int i = -1; i <= 1; i++)
					sum += weights[j + 1][i + 1] * from[(y + j) * WIDTH + x + i];
			to[y * WIDTH + x] = sum / 16;
		}
}

static int square_root(int n)
{
	int root = 0;

	for (int bit = 1 << 10; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= n)
			root += bit;
	return root;
}

static void edges(u8 *to, const u8 *from, int height)
{
	for (int y = 2; y < height - 2; y++)
		for (int x = 2; x < WIDTH - 2; x++) {
			const u8 *p = from + y * WIDTH + x;
			int dx = p[1 - WIDTH] + 2 * p[1] + p[1 + WIDTH] - p[-1 - WIDTH] - 2 * p[-1] - p[WIDTH - 1];
			int dy = p[WIDTH - 1] + 2 * p[WIDTH] + p[WIDTH + 1] - p[-WIDTH - 1] - 2 * p[-WIDTH] - p[1 - WIDTH];
			int strength = square_root(dx * dx + dy * dy);

			to[y * WIDTH + x] = strength > 255 ? 255 : strength;
		}
}

WORKLOAD u64 prog(struct block *block)
{
	int height = block->len;
	u8 *blurred = block->scratch, *result = blurred + AREA / 2;

	memset(result, 0, WIDTH * height);
	blur(blurred, block->input, height);
	edges(result, blurred, height);
	return digest(result, WIDTH * height);
}

// The discrete cosine transform of 8x8 blocks in fixed point, quantised and put in zigzag order, as JPEG does it with len blocks
// of grey pixels; then runs of zeros are counted.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

/* cos((2x + 1) u pi / 16) / 2 in 12 bits, with 1/sqrt(2) where u is 0. */
static const s16 cosines[8][8] = {
	{ 1448, 1448, 1448, 1448, 1448, 1448, 1448, 1448 },
	{ 2009, 1703, 1138, 400, -400, -1138, -1703, -2009 },
	{ 1892, 784, -784, -1892, -1892, -784, 784, 1892 },
	{ 1703, -400, -2009, -1138, 1138, 2009, 400, -1703 },
	{ 1448, -1448, -1448, 1448, 1448, -1448, -1448, 1448 },
	{ 1138, -2009, 400, 1703, -1703, -400, 2009, -1138 },
	{ 784, -1892, 1892, -784, -784, 1892, -1892, 784 },
	{ 400, -1138, 1703, -2009, 2009, -1703, 1138, -400 },
};

static const u8 quantum[64] = {
	16, 11, 10, 16, 24,  40,  51,  61,  12, 12, 14, 19, 26,	 58,  60,  55,	14, 13, 16, 24,	 40,  57,
	69, 56, 14, 17, 22,  29,  51,  87,  80, 62, 18, 22, 37,	 56,  68,  109, 103, 77, 24, 35,  55,  64,
	81, 104, 113, 92, 49, 64, 78,  87,  103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
};

static void transform(s32 *out, const u8 *pixels)
{
	s32 rows[64];
	int u, x, y;

	for (y = 0; y < 8; y++)
		for (u = 0; u < 8; u++) {
			s32 sum = 0;

			for (x = 0; x < 8; x++)
				sum += cosines[u][x] * (pixels[8 * y + x] - 128);
			rows[8 * y + u] = sum >> 6;
		}
	for (x = 0; x < 8; x++)
		for (u = 0; u < 8; u++) {
			s32 sum = 0;

			for (y = 0; y < 8; y++)
				sum += cosines[u][y] * rows[8 * y + x];
			out[8 * u + x] = sum >> 18;
		}
}

static void make_zigzag(u8 *order)
{
	int row = 0, column = 0;

	for (int i = 0; i < 64; i++) {
		order[i] = 8 * row + column;
		if ((row + column) % 2 == 0) {
			if (column == 7)
				row++;
			else if (row == 0)
				column++;
			else
				row--, column++;
		} else {
			if (row == 7)
				column++;
			else if (column == 0)
				row++;
			else
				row++, column--;
		}
	}
}

WORKLOAD u64 prog(struct block *block)
{
	s32 *coefficients = (s32 *)block->scratch;
	u8 *order = block->scratch + 256, *pixels = order + 64;
	u64 hash = 0;

	make_zigzag(order);
	for (u32 at = 0; at < block->len; at++) {
		u32 run = 0;

		/* Noise over a slope. */
		for (int i = 0; i < 64; i++)
			pixels[i] = 8 * (i & 7) + 4 * (i >> 3) + at % 64 + block->input[(64 * at + i) % AREA] / 16;
		transform(coefficients, pixels);
		for (int i = 0; i < 64; i++) {
			s32 value = coefficients[order[i]] / quantum[order[i]];

			if (value) {
				hash = hash * 31 + (run << 16 | (u16)value);
				run = 0;
			} else {
				run++;
			}
		}
		hash = hash * 31 + run;
	}
	return hash;
}

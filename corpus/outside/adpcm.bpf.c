// IMA ADPCM: encodes len samples of a wave that is made first to 4 bits each, decodes them, and adds up the error.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

static const s16 steps[89] = {
	7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 25, 28, 31, 34, 37, 41, 45, 50, 55, 60, 66, 73, 80, 88, 97, 107, 118, 130,
	143, 157, 173, 190, 209, 230, 253, 279, 307, 337, 371, 408, 449, 494, 544, 598, 658, 724, 796, 876, 963, 1060, 1166, 1282,
	1411, 1552, 1707, 1878, 2066, 2272, 2499, 2749, 3024, 3327, 3660, 4026, 4428, 4871, 5358, 5894, 6484, 7132, 7845, 8630, 9493,
	10442, 11487, 12635, 13899, 15289, 16818, 18500, 20350, 22385, 24623, 27086, 29794, 32767,
};

static const s8 changes[8] = { -1, -1, -1, -1, 2, 4, 6, 8 };

struct predictor {
	int sample, index;
};

static int clamp(int value, int low, int high)
{
	return value < low ? low : value > high ? high : value;
}

static int decode(struct predictor *p, u32 code)
{
	int step = steps[p->index], difference = step >> 3;

	if (code & 4)
		difference += step;
	if (code & 2)
		difference += step >> 1;
	if (code & 1)
		difference += step >> 2;
	if (code & 8)
		difference = -difference;
	p->sample = clamp(p->sample + difference, -32768, 32767);
	p->index = clamp(p->index + changes[code & 7], 0, 88);
	return p->sample;
}

static u32 encode(struct predictor *p, int sample)
{
	int step = steps[p->index], difference = sample - p->sample;
	u32 code = 0;

	if (difference < 0) {
		code = 8;
		difference = -difference;
	}
	if (difference >= step) {
		code |= 4;
		difference -= step;
	}
	step >>= 1;
	if (difference >= step) {
		code |= 2;
		difference -= step;
	}
	step >>= 1;
	if (difference >= step)
		code |= 1;
	decode(p, code);
	return code;
}

WORKLOAD u64 prog(struct block *block)
{
	struct predictor in = { 0, 0 }, out = { 0, 0 };
	s16 *wave = (s16 *)block->scratch;
	u8 *packed = block->scratch + AREA / 2;
	u32 n = block->len & ~1, i;
	int level = 0, speed = 0, error;
	u64 errors = 0;

	/* A swing that noise pushes. */
	for (i = 0; i < n; i++) {
		speed += block->input[i] * 2 - 255 - level / 64;
		level = clamp(level + speed / 8, -32768, 32767);
		wave[i] = level;
	}
	for (i = 0; i < n; i += 2) {
		u32 low = encode(&in, wave[i]);

		packed[i / 2] = low | encode(&in, wave[i + 1]) << 4;
	}
	for (i = 0; i < n; i++) {
		error = decode(&out, packed[i / 2] >> (i & 1) * 4 & 15) - wave[i];
		errors += (s64)error * error;
	}
	return digest(packed, n / 2) ^ errors;
}

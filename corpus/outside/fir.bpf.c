// A low pass of 32 taps in 15-bit fixed point over len 16-bit samples, then every other sample squared and smoothed.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

#define TAPS 32

static const s16 taps[TAPS] = {
	-18, -31, -12, 46, 114, 110, -39, -287, -434, -230, 374, 1093, 1363, 709, -693, -2051, -2051, -693, 709, 1363, 1093, 374, -230,
	-434, -287, -39, 110, 114, 46, -12, -31, -18,
};

static s16 saturate(s64 value)
{
	return value > 32767 ? 32767 : value < -32768 ? -32768 : value;
}

static void filter(s16 *out, const s16 *in, u32 n)
{
	for (u32 i = 0; i + TAPS <= n; i++) {
		s64 sum = 1 << 14;

		for (u32 k = 0; k < TAPS; k++)
			sum += taps[k] * in[i + k];
		out[i] = saturate(sum >> 15);
	}
}

WORKLOAD u64 prog(struct block *block)
{
	const s16 *in = (const s16 *)block->input16;
	s16 *out = (s16 *)block->scratch;
	u32 n = block->len;
	s64 level = 0;

	filter(out, in, n);
	for (u32 i = 0; i + TAPS <= n; i += 2)
		level += ((s64)out[i] * out[i] - level) / 64;
	return digest(out, 2 * (n - TAPS + 1)) ^ level;
}

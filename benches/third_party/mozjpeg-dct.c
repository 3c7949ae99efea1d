// The slow integer transforms of mozjpeg-sys: len blocks of pixels to coefficients, coarser ones, and back. Adds up the error.
#include <third_party.h>

#define NO_GETENV
#define NO_PUTENV
#include "vendor/jfdctint.c"
#undef CONST_BITS
#undef PASS1_BITS
#undef FIX_0_298631336
#include "vendor/jidctint.c"
THIRD_PARTY_END

WORKLOAD uint64_t prog(struct block *block)
{
	static struct jpeg_decompress_struct info;
	static jpeg_component_info component;
	static ISLOW_MULT_TYPE table[DCTSIZE2];
	static JSAMPLE limits[5 * (MAXJSAMPLE + 1)];
	DCTELEM data[DCTSIZE2];
	JCOEF coefficients[DCTSIZE2];
	JSAMPLE pixels[DCTSIZE2];
	JSAMPROW rows[DCTSIZE];
	uint64_t hash = 0, errors = 0;
	int i;

	/* Samples are limited by a table whose middle is 0 to 255; its index wraps. */
	for (i = 0; i < 1024; i++)
		limits[MAXJSAMPLE + 1 + i] = i < 128 ? i + 128 : i < 512 ? 255 : i < 896 ? 0 : i - 896;
	info.sample_range_limit = limits + MAXJSAMPLE + 1 - CENTERJSAMPLE;
	component.dct_table = table;
	for (i = 0; i < DCTSIZE2; i++)
		table[i] = 3 + i / 4;
	for (i = 0; i < DCTSIZE; i++)
		rows[i] = pixels + DCTSIZE * i;
	for (uint64_t at = 0; at < block->len; at++) {
		const uint8_t *from = block->input + DCTSIZE2 * at;

		for (i = 0; i < DCTSIZE2; i++)
			data[i] = (from[i] / 4 + 2 * i) - CENTERJSAMPLE;
		jpeg_fdct_islow(data);
		for (i = 0; i < DCTSIZE2; i++)
			coefficients[i] = data[i] / (8 * (int)table[i]);
		jpeg_idct_islow(&info, &component, coefficients, rows, 0);
		for (i = 0; i < DCTSIZE2; i++) {
			int error = pixels[i] - (from[i] / 4 + 2 * i);

			errors += error * error;
		}
		hash = hash * 31 + digest(pixels, sizeof(pixels));
	}
	return hash ^ errors << 32;
}

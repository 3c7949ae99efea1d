// The Adler-32 checksum of RFC 1950 over len bytes.
// build: -fno-builtin
#include "outside.h"

#define BASE 65521
#define NMAX 5552 /* bytes before the sums may overflow */

static u32 adler32(u32 adler, const u8 *data, u32 len)
{
	u32 a = adler & 0xffff, b = adler >> 16;

	while (len) {
		u32 n = len < NMAX ? len : NMAX;

		len -= n;
		while (n--) {
			a += *data++;
			b += a;
		}
		a %= BASE;
		b %= BASE;
	}
	return b << 16 | a;
}

WORKLOAD u64 prog(struct block *block)
{
	return adler32(1, block->input, block->len);
}

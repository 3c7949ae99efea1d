// SHA-256 over len bytes, a multiple of 64, without the padding block: 32-bit work with a lot of loads. The
// round constants are the first 256 bytes of the input, because a table in .rodata would need a relocation.
// build: -fno-builtin
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	const u32 *k = block->input32;
	u32 *w = block->scratch32, *h = block->scratch32 + 64;
	u32 chunks = block->len / 64, chunk, i;

	if (chunks > AREA / 64 - 4)
		return 0;
	h[0] = 0x6a09e667, h[1] = 0xbb67ae85, h[2] = 0x3c6ef372, h[3] = 0xa54ff53a;
	h[4] = 0x510e527f, h[5] = 0x9b05688c, h[6] = 0x1f83d9ab, h[7] = 0x5be0cd19;
	for (chunk = 0; chunk < chunks; chunk++) {
		const u32 *message = block->input32 + 64 + chunk * 16;
		u32 a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];

		for (i = 0; i < 16; i++)
			w[i] = __builtin_bswap32(message[i]);
		for (i = 16; i < 64; i++) {
			u32 x = w[i - 15], y = w[i - 2];

			w[i] = w[i - 16] + (rotr32(x, 7) ^ rotr32(x, 18) ^ x >> 3) + w[i - 7] +
			       (rotr32(y, 17) ^ rotr32(y, 19) ^ y >> 10);
		}
		for (i = 0; i < 64; i++) {
			u32 t1 = last + (rotr32(e, 6) ^ rotr32(e, 11) ^ rotr32(e, 25)) + ((e & f) ^ (~e & g)) +
				 k[i] + w[i];
			u32 t2 = (rotr32(a, 2) ^ rotr32(a, 13) ^ rotr32(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));

			last = g, g = f, f = e, e = d + t1;
			d = c, c = b, b = a, a = t1 + t2;
		}
		h[0] += a, h[1] += b, h[2] += c, h[3] += d;
		h[4] += e, h[5] += f, h[6] += g, h[7] += last;
	}
	return ((u64)h[0] << 32 | h[1]) ^ ((u64)h[2] << 32 | h[3]) ^ ((u64)h[4] << 32 | h[5]) ^
	       ((u64)h[6] << 32 | h[7]);
}

// ChaCha20 (RFC 8439) over len bytes, a multiple of 64: sixteen words of state where a machine has ten registers.
// The key is the first 32 bytes of the input, the nonce and the first counter follow; the text begins at byte 64.
#include "block.h"

#define QUARTER(a, b, c, d)                 \
	do {                                \
		a += b, d = rotl32(d ^ a, 16); \
		c += d, b = rotl32(b ^ c, 12); \
		a += b, d = rotl32(d ^ a, 8);  \
		c += d, b = rotl32(b ^ c, 7);  \
	} while (0)

KERNEL u64 prog(struct block *block)
{
	const u32 *key = block->input32;
	u32 chunks = block->len / 64, chunk, i;
	u64 hash = 0;

	if (chunks > AREA / 64 - 1)
		return 0;
	for (chunk = 0; chunk < chunks; chunk++) {
		const u32 *text = block->input32 + 16 + chunk * 16;
		u32 *out = block->scratch32 + chunk * 16;
		u32 x0 = 0x61707865, x1 = 0x3320646e, x2 = 0x79622d32, x3 = 0x6b206574;
		u32 x4 = key[0], x5 = key[1], x6 = key[2], x7 = key[3];
		u32 x8 = key[4], x9 = key[5], x10 = key[6], x11 = key[7];
		u32 x12 = key[11] + chunk, x13 = key[8], x14 = key[9], x15 = key[10];

#pragma clang loop unroll(disable)
		for (i = 0; i < 10; i++) {
			QUARTER(x0, x4, x8, x12);
			QUARTER(x1, x5, x9, x13);
			QUARTER(x2, x6, x10, x14);
			QUARTER(x3, x7, x11, x15);
			QUARTER(x0, x5, x10, x15);
			QUARTER(x1, x6, x11, x12);
			QUARTER(x2, x7, x8, x13);
			QUARTER(x3, x4, x9, x14);
		}
		out[0] = text[0] ^ (x0 + 0x61707865), out[1] = text[1] ^ (x1 + 0x3320646e);
		out[2] = text[2] ^ (x2 + 0x79622d32), out[3] = text[3] ^ (x3 + 0x6b206574);
		out[4] = text[4] ^ (x4 + key[0]), out[5] = text[5] ^ (x5 + key[1]);
		out[6] = text[6] ^ (x6 + key[2]), out[7] = text[7] ^ (x7 + key[3]);
		out[8] = text[8] ^ (x8 + key[4]), out[9] = text[9] ^ (x9 + key[5]);
		out[10] = text[10] ^ (x10 + key[6]), out[11] = text[11] ^ (x11 + key[7]);
		out[12] = text[12] ^ (x12 + key[11] + chunk), out[13] = text[13] ^ (x13 + key[8]);
		out[14] = text[14] ^ (x14 + key[9]), out[15] = text[15] ^ (x15 + key[10]);
	}
	for (i = 0; i < chunks * 8; i++)
		hash = hash * 31 + block->scratch64[i];
	return hash;
}

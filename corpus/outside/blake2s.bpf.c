// BLAKE2s-256 (RFC 7693) of len bytes; the first eight bytes of the digest.
// build: -fno-builtin
#include "outside.h"

static const u32 iv[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const u8 sigma[10][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

static void mix(u32 *v, int columns, u32 x, u32 y)
{
	u32 *a = v + (columns & 15), *b = v + (columns >> 4 & 15);
	u32 *c = v + (columns >> 8 & 15), *d = v + (columns >> 12 & 15);

	*a += *b + x;
	*d = rotr32(*d ^ *a, 16);
	*c += *d;
	*b = rotr32(*b ^ *c, 12);
	*a += *b + y;
	*d = rotr32(*d ^ *a, 8);
	*c += *d;
	*b = rotr32(*b ^ *c, 7);
}

static void compress(u32 *h, const u8 *data, u32 counter, int last)
{
	static const u16 columns[8] = { 0xc840, 0xd951, 0xea62, 0xfb73, 0xfa50, 0xcb61, 0xd872, 0xe943 };
	u32 v[16], m[16];
	int i, r;

	for (i = 0; i < 8; i++) {
		v[i] = h[i];
		v[i + 8] = iv[i];
	}
	v[12] ^= counter;
	if (last)
		v[14] = ~v[14];
	for (i = 0; i < 16; i++)
		m[i] = load_le32(data + 4 * i);
	for (r = 0; r < 10; r++)
		for (i = 0; i < 8; i++)
			mix(v, columns[i], m[sigma[r][2 * i]], m[sigma[r][2 * i + 1]]);
	for (i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[i + 8];
}

WORKLOAD u64 prog(struct block *block)
{
	u32 len = block->len, at = 0, h[8];
	u8 *last = block->scratch;
	int i;

	for (i = 0; i < 8; i++)
		h[i] = iv[i];
	h[0] ^= 0x01010000 ^ 32;
	for (; at + 64 < len; at += 64)
		compress(h, block->input + at, at + 64, 0);
	memset(last, 0, 64);
	memcpy(last, block->input + at, len - at);
	compress(h, last, len, 1);
	store_le32(last, h[0]);
	store_le32(last + 4, h[1]);
	return load_be64(last);
}

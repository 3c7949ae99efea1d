// MD5 (RFC 1321) of len bytes; the first eight bytes of the digest.
// build: -fno-builtin
#include "outside.h"

static const u8 shifts[4][4] = { { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 } };

static const u32 sines[64] = {
	0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
	0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
	0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
	0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
	0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
	0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
	0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
	0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static void transform(u32 state[4], const u8 *data)
{
	u32 a = state[0], b = state[1], c = state[2], d = state[3], f, x[16];
	int i, g;

	for (i = 0; i < 16; i++)
		x[i] = load_le32(data + 4 * i);
	for (i = 0; i < 64; i++) {
		if (i < 16) {
			f = (b & c) | (~b & d);
			g = i;
		} else if (i < 32) {
			f = (d & b) | (~d & c);
			g = 5 * i + 1;
		} else if (i < 48) {
			f = b ^ c ^ d;
			g = 3 * i + 5;
		} else {
			f = c ^ (b | ~d);
			g = 7 * i;
		}
		f += a + sines[i] + x[g & 15];
		a = d;
		d = c;
		c = b;
		b += rotl32(f, shifts[i / 16][i & 3]);
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
}

WORKLOAD u64 prog(struct block *block)
{
	u32 state[4] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 };
	u32 len = block->len, at, rest;
	u8 *last = block->scratch;

	for (at = 0; at + 64 <= len; at += 64)
		transform(state, block->input + at);
	rest = len - at;
	memset(last, 0, 128);
	memcpy(last, block->input + at, rest);
	last[rest] = 0x80;
	at = rest < 56 ? 56 : 120;
	store_le32(last + at, len << 3);
	store_le32(last + at + 4, len >> 29);
	transform(state, last);
	if (at == 120)
		transform(state, last + 64);
	store_le32(last, state[0]);
	store_le32(last + 4, state[1]);
	return load_be64(last);
}

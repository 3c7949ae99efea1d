// SHA-1 (FIPS 180-4) of len bytes; the first eight bytes of the digest.
// build: -fno-builtin
#include "outside.h"

static void compress(u32 state[5], const u8 *data)
{
	u32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f, k, w[80];
	int t;

	for (t = 0; t < 16; t++)
		w[t] = load_be32(data + 4 * t);
	for (; t < 80; t++)
		w[t] = rotl32(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
	for (t = 0; t < 80; t++) {
		if (t < 20) {
			f = (b & c) | (~b & d);
			k = 0x5a827999;
		} else if (t < 40) {
			f = b ^ c ^ d;
			k = 0x6ed9eba1;
		} else if (t < 60) {
			f = (b & c) | (b & d) | (c & d);
			k = 0x8f1bbcdc;
		} else {
			f = b ^ c ^ d;
			k = 0xca62c1d6;
		}
		f += rotl32(a, 5) + e + k + w[t];
		e = d;
		d = c;
		c = rotl32(b, 30);
		b = a;
		a = f;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
}

WORKLOAD u64 prog(struct block *block)
{
	u32 state[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	u32 len = block->len, at, rest;
	u8 *last = block->scratch;

	for (at = 0; at + 64 <= len; at += 64)
		compress(state, block->input + at);
	rest = len - at;
	memset(last, 0, 128);
	memcpy(last, block->input + at, rest);
	last[rest] = 0x80;
	at = rest < 56 ? 56 : 120;
	store_be32(last + at, len >> 29);
	store_be32(last + at + 4, len << 3);
	compress(state, last);
	if (at == 120)
		compress(state, last + 64);
	return (u64)state[0] << 32 | state[1];
}

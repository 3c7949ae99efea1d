// Poly1305 (RFC 8439) with limbs of 26 bits over len bytes, of which the first 32 are the key. The first eight bytes of
// the tag.
// build: -fno-builtin
#include "outside.h"

#define MASK 0x3ffffff

static void block_of(u32 *h, const u32 *r, const u8 *p, u32 high)
{
	u64 d[5], carry = 0;
	int i, j;

	h[0] += load_le32(p) & MASK;
	h[1] += load_le32(p + 3) >> 2 & MASK;
	h[2] += load_le32(p + 6) >> 4 & MASK;
	h[3] += load_le32(p + 9) >> 6 & MASK;
	h[4] += load_le32(p + 12) >> 8 | high;
	for (i = 0; i < 5; i++) {
		d[i] = 0;
		for (j = 0; j < 5; j++)
			d[i] += (u64)h[j] * (j <= i ? r[i - j] : 5 * r[5 + i - j]);
	}
	for (i = 0; i < 5; i++) {
		d[i] += carry;
		h[i] = d[i] & MASK;
		carry = d[i] >> 26;
	}
	h[0] += carry * 5;
	h[1] += h[0] >> 26;
	h[0] &= MASK;
}

static u64 finish(u32 *h, const u8 *key)
{
	u32 g[5], carry, mask, low, high;
	int i;

	for (carry = 0, i = 1; i <= 5; i++) {
		u32 *limb = h + i % 5;

		*limb += i < 5 ? carry : 5 * carry;
		carry = *limb >> 26;
		*limb &= MASK;
	}
	h[1] += carry;
	for (carry = 5, i = 0; i < 5; i++) {
		g[i] = h[i] + carry;
		carry = g[i] >> 26;
		g[i] &= MASK;
	}
	mask = -carry; /* all ones if h >= 2^130 - 5 */
	for (i = 0; i < 5; i++)
		h[i] = (h[i] & ~mask) | (g[i] & mask);
	low = h[0] | h[1] << 26;
	high = h[1] >> 6 | h[2] << 20;
	return (low | (u64)high << 32) + load_le64(key + 16);
}

WORKLOAD u64 prog(struct block *block)
{
	const u8 *key = block->input;
	u32 len = block->len, at, r[5], h[5] = { 0 };
	u8 last[16];
	u64 tag;

	r[0] = load_le32(key) & 0x3ffffff;
	r[1] = load_le32(key + 3) >> 2 & 0x3ffff03;
	r[2] = load_le32(key + 6) >> 4 & 0x3ffc0ff;
	r[3] = load_le32(key + 9) >> 6 & 0x3f03fff;
	r[4] = load_le32(key + 12) >> 8 & 0x00fffff;
	for (at = 32; at + 16 <= len; at += 16)
		block_of(h, r, block->input + at, 1 << 24);
	if (at < len) {
		memset(last, 0, 16);
		memcpy(last, block->input + at, len - at);
		last[len - at] = 1;
		block_of(h, r, last, 0);
	}
	tag = finish(h, key);
	store_le32(last, tag);
	store_le32(last + 4, tag >> 32);
	return load_be64(last);
}

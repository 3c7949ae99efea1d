// Base64 (RFC 4648): encodes len bytes, decodes the text again, and compares. A digest of the text.
// build: -fno-builtin
#include "outside.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static u32 encode(u8 *to, const u8 *from, u32 len)
{
	u8 *start = to;
	u32 word;

	for (; len >= 3; len -= 3, from += 3) {
		word = from[0] << 16 | from[1] << 8 | from[2];
		*to++ = alphabet[word >> 18];
		*to++ = alphabet[word >> 12 & 63];
		*to++ = alphabet[word >> 6 & 63];
		*to++ = alphabet[word & 63];
	}
	if (len) {
		word = from[0] << 16 | (len == 2 ? from[1] << 8 : 0);
		*to++ = alphabet[word >> 18];
		*to++ = alphabet[word >> 12 & 63];
		*to++ = len == 2 ? alphabet[word >> 6 & 63] : '=';
		*to++ = '=';
	}
	return to - start;
}

static int value_of(u8 c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int decode(u8 *to, const u8 *from, u32 len)
{
	u8 *start = to;
	u32 word = 0, bits = 0;

	for (; len && *from != '='; len--, from++) {
		int value = value_of(*from);

		if (value < 0)
			return -1;
		word = word << 6 | value;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			*to++ = word >> bits;
		}
	}
	return to - start;
}

WORKLOAD u64 prog(struct block *block)
{
	u32 len = block->len, size = encode(block->scratch, block->input, len);
	u8 *back = block->scratch + size;

	if (decode(back, block->scratch, size) != (int)len || memcmp(back, block->input, len))
		return 0;
	return digest(block->scratch, size);
}

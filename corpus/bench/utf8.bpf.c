// UTF-8 to UTF-16 of len bytes. What is not UTF-8 becomes U+FFFD, one for each longest part that could have begun a
// character, as the Unicode standard (3.9, "maximal subparts") advises. Runs of ASCII go eight bytes at a time.
// build: -fno-builtin
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	const u8 *text = block->input;
	u16 *out = (u16 *)block->scratch;
	u32 n = block->len, at = 0, to = 0, wrong = 0, i;
	u64 hash = 0;

	if (n > AREA / 2)
		return 0;
	while (at < n) {
		u32 c = text[at], least = 0x80, most = 0xbf, more;

		if (c < 0x80) {
			if (n - at >= 8) {
				u64 word = *(const u64 *)(text + at);

				if (!(word & 0x8080808080808080ULL)) {
					out[to] = word & 0xff, out[to + 1] = word >> 8 & 0xff;
					out[to + 2] = word >> 16 & 0xff, out[to + 3] = word >> 24 & 0xff;
					out[to + 4] = word >> 32 & 0xff, out[to + 5] = word >> 40 & 0xff;
					out[to + 6] = word >> 48 & 0xff, out[to + 7] = word >> 56;
					to += 8, at += 8;
					continue;
				}
			}
			out[to++] = c;
			at++;
			continue;
		}
		at++;
		if (c < 0xc2 || c > 0xf4) {
			out[to++] = 0xfffd;
			wrong++;
			continue;
		}
		if (c < 0xe0) {
			more = 1, c &= 31;
		} else if (c < 0xf0) {
			least = c == 0xe0 ? 0xa0 : least, most = c == 0xed ? 0x9f : most;
			more = 2, c &= 15;
		} else {
			least = c == 0xf0 ? 0x90 : least, most = c == 0xf4 ? 0x8f : most;
			more = 3, c &= 7;
		}
#pragma clang loop unroll(disable)
		for (; more; more--) {
			if (at >= n || text[at] < least || text[at] > most)
				break;
			c = c << 6 | (text[at++] & 63);
			least = 0x80, most = 0xbf;
		}
		if (more) {
			out[to++] = 0xfffd;
			wrong++;
		} else if (c < 0x10000) {
			out[to++] = c;
		} else {
			out[to++] = 0xd7c0 + (c >> 10);
			out[to++] = 0xdc00 | (c & 0x3ff);
		}
	}
	for (i = 0; i < to; i++)
		hash = hash * 31 + out[i];
	return hash ^ (u64)wrong << 48;
}

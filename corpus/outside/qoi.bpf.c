// The QOI image format: encodes an image of len pixels, decodes it again, and compares. The size of the encoded image and its
// digest.
// build: -fno-builtin -mllvm -bpf-stack-size=1024
#include "outside.h"

struct pixel {
	u8 r, g, b, a;
};

static u32 slot_of(struct pixel p)
{
	return (p.r * 3 + p.g * 5 + p.b * 7 + p.a * 11) % 64;
}

static int same(struct pixel a, struct pixel b)
{
	return a.r == b.r && a.g == b.g && a.b == b.b && a.a == b.a;
}

static u32 encode(u8 *out, const struct pixel *pixels, u32 n)
{
	struct pixel seen[64], previous = { 0, 0, 0, 255 };
	u32 size = 0, run = 0;

	memset(seen, 0, sizeof(seen));
	for (u32 i = 0; i < n; i++) {
		struct pixel p = pixels[i];
		u32 slot;

		if (same(p, previous)) {
			if (++run == 62 || i == n - 1) {
				out[size++] = 0xc0 | (run - 1);
				run = 0;
			}
			continue;
		}
		if (run) {
			out[size++] = 0xc0 | (run - 1);
			run = 0;
		}
		slot = slot_of(p);
		if (same(p, seen[slot])) {
			out[size++] = slot;
		} else if (p.a == previous.a) {
			s8 r = p.r - previous.r, g = p.g - previous.g, b = p.b - previous.b, rg = r - g, bg = b - g;

			if (r > -3 && r < 2 && g > -3 && g < 2 && b > -3 && b < 2) {
				out[size++] = 0x40 | (r + 2) << 4 | (g + 2) << 2 | (b + 2);
			} else if (rg > -9 && rg < 8 && g > -33 && g < 32 && bg > -9 && bg < 8) {
				out[size++] = 0x80 | (g + 32);
				out[size++] = (rg + 8) << 4 | (bg + 8);
			} else {
				out[size++] = 0xfe;
				out[size++] = p.r;
				out[size++] = p.g;
				out[size++] = p.b;
			}
		} else {
			out[size++] = 0xff;
			out[size++] = p.r;
			out[size++] = p.g;
			out[size++] = p.b;
			out[size++] = p.a;
		}
		seen[slot] = previous = p;
	}
	return size;
}

static u32 decode(struct pixel *pixels, const u8 *in, u32 size)
{
	struct pixel seen[64], p = { 0, 0, 0, 255 };
	u32 at = 0, n = 0;

	memset(seen, 0, sizeof(seen));
	while (at < size) {
		u32 byte = in[at++], run = 1;

		if (byte >= 0xfe) {
			p.r = in[at++];
			p.g = in[at++];
			p.b = in[at++];
			if (byte == 0xff)
				p.a = in[at++];
		} else {
			switch (byte >> 6) {
			case 0:
				p = seen[byte];
				break;
			case 1:
				p.r += (byte >> 4 & 3) - 2;
				p.g += (byte >> 2 & 3) - 2;
				p.b += (byte & 3) - 2;
				break;
			case 2: {
				u32 more = in[at++], g = (byte & 63) - 32;

				p.r += g - 8 + (more >> 4);
				p.g += g;
				p.b += g - 8 + (more & 15);
				break;
			}
			default:
				run = (byte & 63) + 1;
			}
		}
		seen[slot_of(p)] = p;
		while (run--)
			pixels[n++] = p;
	}
	return n;
}

WORKLOAD u64 prog(struct block *block)
{
	const struct pixel *pixels = (const struct pixel *)block->input;
	struct pixel *back = (struct pixel *)(block->scratch + AREA / 2);
	u32 n = block->len, size = encode(block->scratch, pixels, n);

	if (decode(back, block->scratch, size) != n || memcmp(back, pixels, 4 * n))
		return 0;
	return digest(block->scratch, size) ^ size;
}

// Compresses len bytes by LZ77 with a chain of earlier places for each hash of three bytes, decompresses what came out, and
// compares. The size and a digest of the compressed bytes, in groups of eight with a byte of flags.
// build: -fno-builtin
#include "outside.h"

#define WINDOW 4096
#define MIN_MATCH 3
#define MAX_MATCH 18
#define MAX_CHAIN 16
#define NONE 0xffff

struct tables {
	u16 head[1024];
	u16 previous[WINDOW];
};

static u32 hash_of(const u8 *p)
{
	return (p[0] << 16 | p[1] << 8 | p[2]) * 2654435761u >> 22;
}

static u32 match_length(const u8 *a, const u8 *b, u32 most)
{
	u32 n = 0;

	while (n < most && a[n] == b[n])
		n++;
	return n;
}

static u32 compress(struct tables *t, u8 *out, const u8 *in, u32 len)
{
	u32 at = 0, size = 0, flags = 0, count = 0;

	memset(t->head, 0xff, sizeof(t->head));
	while (at < len) {
		u32 most = len - at < MAX_MATCH ? len - at : MAX_MATCH, best = 0, offset = 0, step;

		if (count % 8 == 0) {
			flags = size++;
			out[flags] = 0;
		}
		if (most >= MIN_MATCH) {
			u32 place = t->head[hash_of(in + at)];

			for (u32 tries = 0; tries < MAX_CHAIN && place != NONE && at - place < WINDOW; tries++) {
				u32 n = match_length(in + place, in + at, most);

				if (n > best) {
					best = n;
					offset = at - place;
				}
				place = t->previous[place % WINDOW];
			}
		}
		if (best >= MIN_MATCH) {
			out[flags] |= 1 << count % 8;
			out[size++] = offset;
			out[size++] = offset >> 8 << 4 | (best - MIN_MATCH);
		} else {
			best = 1;
			out[size++] = in[at];
		}
		for (step = 0; step < best; step++, at++) {
			if (len - at >= MIN_MATCH) {
				u32 hash = hash_of(in + at);

				t->previous[at % WINDOW] = t->head[hash];
				t->head[hash] = at;
			}
		}
		count++;
	}
	return size;
}

static u32 decompress(u8 *out, const u8 *in, u32 size)
{
	u32 at = 0, to = 0, flags = 0, count = 0;

	for (; at < size; count++) {
		if (count % 8 == 0)
			flags = in[at++];
		if (flags >> count % 8 & 1) {
			u32 offset = in[at] | in[at + 1] >> 4 << 8, n = (in[at + 1] & 15) + MIN_MATCH;

			for (at += 2; n; n--, to++)
				out[to] = out[to - offset];
		} else {
			out[to++] = in[at++];
		}
	}
	return to;
}

WORKLOAD u64 prog(struct block *block)
{
	struct tables *t = (struct tables *)block->scratch;
	u8 *packed = (u8 *)(t + 1), *text = packed + 20480;
	u32 len = block->len, size = compress(t, packed, block->input, len);

	if (decompress(text, packed, size) != len || memcmp(text, block->input, len))
		return 0;
	return digest(packed, size) ^ size;
}

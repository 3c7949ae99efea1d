// Reed-Solomon codes over GF(256) with the polynomial 0x11d and roots from 1 on, as those of QR codes. The first byte of the input
// is the number of check bytes, the second that of data bytes of a word. Encodes len words, checks the syndromes of each, and again
// with one byte wrong. A digest of the check bytes, or of the syndromes that should be zero.
// build: -fno-builtin
#include "outside.h"

#define MOST 64

struct state {
	u8 exp[510], log[256];
	u8 generator[MOST + 1];
	u8 word[256];
};

static u8 mul(const struct state *s, u8 a, u8 b)
{
	return a && b ? s->exp[s->log[a] + s->log[b]] : 0;
}

static void make_tables(struct state *s, u32 checks)
{
	u32 x = 1, i, j;

	for (i = 0; i < 255; i++) {
		s->exp[i] = s->exp[i + 255] = x;
		s->log[x] = i;
		x <<= 1;
		if (x & 0x100)
			x ^= 0x11d;
	}
	/* The product of all (x - root), the highest power first. */
	memset(s->generator, 0, sizeof(s->generator));
	s->generator[0] = 1;
	for (i = 0; i < checks; i++)
		for (j = i + 1; j > 0; j--)
			s->generator[j] ^= mul(s, s->generator[j - 1], s->exp[i]);
}

static void encode(struct state *s, const u8 *data, u32 size, u32 checks)
{
	u8 *check = s->word + size;
	u32 i, j;

	memcpy(s->word, data, size);
	memset(check, 0, checks);
	for (i = 0; i < size; i++) {
		u8 factor = data[i] ^ check[0];

		for (j = 0; j + 1 < checks; j++)
			check[j] = check[j + 1] ^ mul(s, factor, s->generator[j + 1]);
		check[checks - 1] = mul(s, factor, s->generator[checks]);
	}
}

/* How many of the syndromes are not zero. */
static u32 syndromes(const struct state *s, u32 size, u32 checks)
{
	u32 wrong = 0, i, j;

	for (i = 0; i < checks; i++) {
		u8 sum = 0;

		for (j = 0; j < size; j++)
			sum = mul(s, sum, s->exp[i]) ^ s->word[j];
		wrong += sum != 0;
	}
	return wrong;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	u32 checks = block->input[0], size = block->input[1];
	const u8 *data = block->input + 2;
	u64 result = 0;

	if (!checks || checks > MOST || checks + size > 255)
		return 0;
	make_tables(s, checks);
	for (u32 i = 0; i < block->len; i++, data += size) {
		encode(s, data, size, checks);
		result = result * 31 + digest(s->word + size, checks);
		if (syndromes(s, size + checks, checks))
			return i;
		s->word[i % size] ^= 1 + i % 255;
		if (syndromes(s, size + checks, checks) != checks)
			return i;
	}
	return result;
}

// Decompresses a DEFLATE stream (RFC 1951) of len bytes: stored blocks, fixed and dynamic Huffman codes. A digest of the
// text, or a small number where the stream is wrong.
// build: -fno-builtin
#include "outside.h"

#define ROOM 60000
#define MAX_BITS 15

struct code {
	u16 count[MAX_BITS + 1];
	u16 symbol[288];
};

struct state {
	const u8 *in;
	u32 len, at, bits, have, size, bad;
	u8 *out;
	struct code literals, distances;
	u8 lengths[320];
};

static u32 take(struct state *s, u32 n)
{
	u32 value;

	while (s->have < n) {
		if (s->at >= s->len) {
			s->bad = 1;
			return 0;
		}
		s->bits |= s->in[s->at++] << s->have;
		s->have += 8;
	}
	value = s->bits & ((1 << n) - 1);
	s->bits >>= n;
	s->have -= n;
	return value;
}

static u32 symbol(struct state *s, const struct code *code)
{
	u32 value = 0, first = 0, index = 0;

	for (u32 len = 1; len <= MAX_BITS; len++) {
		u32 count = code->count[len];

		value |= take(s, 1);
		if (value < first + count)
			return code->symbol[index + value - first];
		index += count;
		first = (first + count) << 1;
		value <<= 1;
	}
	s->bad = 2;
	return 0;
}

static void make_code(struct code *code, const u8 *lengths, u32 n)
{
	u16 offset[MAX_BITS + 2];
	u32 i;

	memset(code->count, 0, sizeof(code->count));
	for (i = 0; i < n; i++)
		code->count[lengths[i]]++;
	code->count[0] = 0;
	offset[1] = 0;
	for (i = 1; i <= MAX_BITS; i++)
		offset[i + 1] = offset[i] + code->count[i];
	for (i = 0; i < n; i++)
		if (lengths[i])
			code->symbol[offset[lengths[i]]++] = i;
}

static void compressed(struct state *s)
{
	static const u16 length_base[29] = { 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99,
					     115, 131, 163, 195, 227, 258 };
	static const u8 length_extra[29] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };
	static const u16 distance_base[30] = { 1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025,
					       1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577 };

	while (!s->bad) {
		u32 next = symbol(s, &s->literals), length, distance;

		if (next == 256)
			return;
		if (next < 256) {
			if (s->size == ROOM)
				s->bad = 3;
			else
				s->out[s->size++] = next;
			continue;
		}
		next -= 257;
		if (next >= 29) {
			s->bad = 4;
			return;
		}
		length = length_base[next] + take(s, length_extra[next]);
		next = symbol(s, &s->distances);
		if (next >= 30) {
			s->bad = 5;
			return;
		}
		distance = distance_base[next] + take(s, next < 2 ? 0 : next / 2 - 1);
		if (distance > s->size || length > ROOM - s->size) {
			s->bad = 6;
			return;
		}
		for (; length; length--, s->size++)
			s->out[s->size] = s->out[s->size - distance];
	}
}

static void fixed(struct state *s)
{
	u32 i;

	for (i = 0; i < 288; i++)
		s->lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
	make_code(&s->literals, s->lengths, 288);
	memset(s->lengths, 5, 30);
	make_code(&s->distances, s->lengths, 30);
	compressed(s);
}

static void dynamic(struct state *s)
{
	static const u8 order[19] = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 };
	u32 literals = take(s, 5) + 257, distances = take(s, 5) + 1, codes = take(s, 4) + 4, i;

	memset(s->lengths, 0, 19);
	for (i = 0; i < codes; i++)
		s->lengths[order[i]] = take(s, 3);
	make_code(&s->literals, s->lengths, 19);
	for (i = 0; i < literals + distances && !s->bad;) {
		u32 next = symbol(s, &s->literals), repeat, value = 0;

		if (next < 16) {
			s->lengths[i++] = next;
			continue;
		}
		if (next == 16 && !i) {
			s->bad = 7;
			return;
		}
		if (next == 16)
			value = s->lengths[i - 1];
		repeat = next == 16 ? 3 + take(s, 2) : next == 17 ? 3 + take(s, 3) : 11 + take(s, 7);
		if (i + repeat > literals + distances) {
			s->bad = 8;
			return;
		}
		while (repeat--)
			s->lengths[i++] = value;
	}
	make_code(&s->literals, s->lengths, literals);
	make_code(&s->distances, s->lengths + literals, distances);
	compressed(s);
}

static void stored(struct state *s)
{
	u32 n;

	s->bits = s->have = 0;
	n = take(s, 16);
	if ((take(s, 16) ^ n) != 0xffff || n > s->len - s->at || n > ROOM - s->size) {
		s->bad = 9;
		return;
	}
	memcpy(s->out + s->size, s->in + s->at, n);
	s->at += n;
	s->size += n;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)(block->scratch + ROOM);
	u32 last;

	s->in = block->input;
	s->len = block->len;
	s->at = s->bits = s->have = s->size = s->bad = 0;
	s->out = block->scratch;
	do {
		last = take(s, 1);
		switch (take(s, 2)) {
		case 0:
			stored(s);
			break;
		case 1:
			fixed(s);
			break;
		case 2:
			dynamic(s);
			break;
		default:
			s->bad = 10;
		}
	} while (!last && !s->bad);
	return s->bad ? s->bad : digest(s->out, s->size);
}

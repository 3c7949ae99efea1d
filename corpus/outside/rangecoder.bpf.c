// An adaptive binary range coder as that of LZMA: encodes len bytes, each as eight decisions along a tree that the byte before
// chooses by its highest three bits, decodes them and compares. A digest of the code.
// build: -fno-builtin
#include "outside.h"

#define PROBABILITY_BITS 11
#define MOVE_BITS 5
#define TOP (1u << 24)

struct state {
	u16 probability[8][256];
	u64 low;
	u32 range, code, size, pending, at;
	u8 cache;
	u8 out[32768];
};

static void reset(struct state *s)
{
	for (u32 context = 0; context < 8; context++)
		for (u32 i = 0; i < 256; i++)
			s->probability[context][i] = 1 << (PROBABILITY_BITS - 1);
	s->range = 0xffffffff;
}

/* A byte is out when no carry can come any more: bytes 0xff wait with the one before them. */
static void shift_low(struct state *s)
{
	if ((u32)s->low < 0xff000000 || s->low >> 32) {
		u8 carry = s->low >> 32, byte = s->cache;

		for (; s->pending; s->pending--) {
			s->out[s->size++ % sizeof(s->out)] = byte + carry;
			byte = 0xff;
		}
		s->cache = s->low >> 24;
	}
	s->pending++;
	s->low = (u32)s->low << 8;
}

static void encode_bit(struct state *s, u16 *probability, u32 bit)
{
	u32 bound = (s->range >> PROBABILITY_BITS) * *probability;

	if (bit) {
		s->low += bound;
		s->range -= bound;
		*probability -= *probability >> MOVE_BITS;
	} else {
		s->range = bound;
		*probability += ((1 << PROBABILITY_BITS) - *probability) >> MOVE_BITS;
	}
	while (s->range < TOP) {
		s->range <<= 8;
		shift_low(s);
	}
}

static u32 decode_bit(struct state *s, u16 *probability)
{
	u32 bound = (s->range >> PROBABILITY_BITS) * *probability, bit;

	if (s->code < bound) {
		s->range = bound;
		*probability += ((1 << PROBABILITY_BITS) - *probability) >> MOVE_BITS;
		bit = 0;
	} else {
		s->code -= bound;
		s->range -= bound;
		*probability -= *probability >> MOVE_BITS;
		bit = 1;
	}
	while (s->range < TOP) {
		s->range <<= 8;
		s->code = s->code << 8 | s->out[s->at++ % sizeof(s->out)];
	}
	return bit;
}

static void encode(struct state *s, const u8 *text, u32 len)
{
	u8 before = 0;

	reset(s);
	s->low = s->size = s->cache = 0;
	s->pending = 1;
	for (u32 i = 0; i < len; i++) {
		u32 node = 1;

		for (int shift = 7; shift >= 0; shift--) {
			u32 bit = text[i] >> shift & 1;

			encode_bit(s, &s->probability[before >> 5][node], bit);
			node = node << 1 | bit;
		}
		before = text[i];
	}
	for (int i = 0; i < 5; i++)
		shift_low(s);
}

/* How many bytes come out as they were. */
static u32 decode(struct state *s, const u8 *text, u32 len)
{
	u32 i;
	u8 before = 0;

	reset(s);
	s->code = load_be32(s->out + 1);
	s->at = 5;
	for (i = 0; i < len; i++) {
		u32 node = 1;

		while (node < 256)
			node = node << 1 | decode_bit(s, &s->probability[before >> 5][node]);
		before = node;
		if (before != text[i])
			break;
	}
	return i;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	u32 len = block->len, same;

	encode(s, block->input, len);
	if (s->size > sizeof(s->out))
		return 0;
	same = decode(s, block->input, len);
	return same == len ? digest(s->out, s->size) ^ s->size : same;
}

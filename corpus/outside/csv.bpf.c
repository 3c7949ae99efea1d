// Reads comma-separated values (RFC 4180) of len bytes: quoted fields with doubled quotes and line ends in them. Adds up numbers
// by column and digests the other fields.
// build: -fno-builtin
#include "outside.h"

enum { START, PLAIN, QUOTED, QUOTE };

struct reader {
	u64 sums[32];
	u64 hash;
	u32 rows, column, len;
	u8 field[512];
};

static void end_field(struct reader *r)
{
	u64 value = 0;
	u32 i;

	for (i = 0; i < r->len; i++) {
		u32 digit = r->field[i] - '0';

		if (digit > 9)
			break;
		value = value * 10 + digit;
	}
	if (r->len && i == r->len)
		r->sums[r->column % 32] += value;
	else
		r->hash ^= digest(r->field, r->len) + r->column;
	r->len = 0;
	r->column++;
}

static void put(struct reader *r, u8 c)
{
	if (r->len < sizeof(r->field))
		r->field[r->len++] = c;
}

static int next(struct reader *r, int state, u8 c)
{
	switch (state) {
	case START:
		if (c == '"')
			return QUOTED;
		/* fall through */
	case PLAIN:
		if (c == ',') {
			end_field(r);
			return START;
		}
		if (c == '\n') {
			end_field(r);
			r->column = 0;
			r->rows++;
			return START;
		}
		if (c != '\r')
			put(r, c);
		return PLAIN;
	case QUOTED:
		if (c == '"')
			return QUOTE;
		put(r, c);
		return QUOTED;
	default:
		if (c == '"') {
			put(r, c);
			return QUOTED;
		}
		return next(r, PLAIN, c);
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct reader *r = (struct reader *)block->scratch;
	int state = START;
	u64 result;

	memset(r, 0, sizeof(*r));
	for (u32 i = 0; i < block->len; i++)
		state = next(r, state, block->input[i]);
	result = r->hash ^ r->rows;
	for (u32 i = 0; i < 32; i++)
		result = result * 31 + r->sums[i];
	return result;
}

// Reads values in the Distinguished Encoding Rules of ASN.1 (X.690), as certificates are, in len slots of 512 bytes, each after its
// length in two bytes: shortest lengths, nested values, integers, object identifiers, times, strings. A digest of what they say, or of
// the mistakes.
// build: -fno-builtin -mllvm -bpf-stack-size=1024
#include "outside.h"

#define SLOT 512
#define DEEPEST 12

enum {
	BOOLEAN = 0x01, INTEGER, BIT_STRING, OCTET_STRING, NOTHING, OBJECT_ID,
	UTF8_STRING = 0x0c, PRINTABLE_STRING = 0x13, UTC_TIME = 0x17, GENERALIZED_TIME,
	CONSTRUCTED = 0x20,
};

struct reader {
	const u8 *at, *end;
	u64 hash;
};

static void add(struct reader *r, u64 value)
{
	r->hash = (r->hash ^ value) * 0x100000001b3;
}

/* The length of a value; -1 if it is wrong, longer than what is left, or could be written shorter. */
static int length(struct reader *r, const u8 *end)
{
	u32 size, len;

	if (r->at == end)
		return -1;
	len = *r->at++;
	if (len & 0x80) {
		size = len & 0x7f;
		if (size < 1 || size > 3 || size > end - r->at || !*r->at)
			return -1;
		for (len = 0; size; size--)
			len = len << 8 | *r->at++;
		if (len < 0x80)
			return -1;
	}
	return len > end - r->at ? -1 : (int)len;
}

static int integer(struct reader *r, const u8 *p, u32 len)
{
	s64 value;

	if (!len)
		return 0;
	if (len > 1 && ((p[0] == 0 && p[1] < 0x80) || (p[0] == 0xff && p[1] >= 0x80)))
		return 0;
	if (len > 8) {
		add(r, digest(p, len));
		return 1;
	}
	value = *p < 0x80 ? 0 : -1;
	while (len--)
		value = (u64)value << 8 | *p++;
	add(r, value);
	return 1;
}

static int object_id(struct reader *r, const u8 *p, u32 len)
{
	const u8 *end = p + len;
	u32 arc = 0, first = 1;

	if (!len || end[-1] & 0x80)
		return 0;
	for (; p < end; p++) {
		if ((!arc && *p == 0x80) || arc >> 25)
			return 0;
		arc = arc << 7 | (*p & 0x7f);
		if (*p & 0x80)
			continue;
		if (first) {
			u32 top = arc < 80 ? arc / 40 : 2;

			add(r, top);
			arc -= 40 * top;
			first = 0;
		}
		add(r, arc);
		arc = 0;
	}
	return 1;
}

static int two_digits(const u8 *p)
{
	u32 tens = p[0] - '0', ones = p[1] - '0';

	return tens > 9 || ones > 9 ? 99 : tens * 10 + ones;
}

/* YYMMDDhhmmssZ with a century before or without: seconds as if each month had 31 days. */
static int time(struct reader *r, const u8 *p, u32 len, u32 years)
{
	u32 year, month, day, hour, minute, second;

	if (len != 11 + years || p[len - 1] != 'Z')
		return 0;
	year = two_digits(p);
	if (years == 4)
		year = year * 100 + two_digits(p + 2);
	else
		year += year < 50 ? 2000 : 1900;
	p += years;
	month = two_digits(p), day = two_digits(p + 2);
	hour = two_digits(p + 4), minute = two_digits(p + 6), second = two_digits(p + 8);
	if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59)
		return 0;
	add(r, ((((year * 12ull + month) * 31 + day) * 24 + hour) * 60 + minute) * 60 + second);
	return 1;
}

static int is_printable(u8 c)
{
	switch (c) {
	case ' ': case '\'': case '(': case ')': case '+': case ',': case '-': case '.': case '/':
	case ':': case '=': case '?':
		return 1;
	default:
		return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
	}
}

static int string(struct reader *r, const u8 *p, u32 len, u32 printable)
{
	for (u32 i = 0; printable && i < len; i++)
		if (!is_printable(p[i]))
			return 0;
	add(r, digest(p, len));
	return 1;
}

/* A value without others in it. */
static int primitive(struct reader *r, u32 tag, const u8 *p, u32 len)
{
	switch (tag) {
	case BOOLEAN:
		if (len != 1 || (p[0] && p[0] != 0xff))
			return 0;
		add(r, p[0]);
		return 1;
	case INTEGER:
		return integer(r, p, len);
	case BIT_STRING:
		return len && p[0] < 8 && (len > 1 || !p[0]) && string(r, p, len, 0);
	case NOTHING:
		return !len;
	case OBJECT_ID:
		return object_id(r, p, len);
	case PRINTABLE_STRING:
		return string(r, p, len, 1);
	case UTC_TIME:
		return time(r, p, len, 2);
	case GENERALIZED_TIME:
		return time(r, p, len, 4);
	default: /* OCTET_STRING, UTF8_STRING, what a context says */
		return string(r, p, len, 0);
	}
}

/* All values up to the end, from the outermost to the innermost; 0 or the kind of mistake. */
static u32 values(struct reader *r)
{
	const u8 *ends[DEEPEST];
	u32 depth = 0, tag;
	int len;

	ends[0] = r->end;
	for (;;) {
		while (r->at == ends[depth]) {
			if (!depth)
				return 0;
			depth--;
			add(r, depth);
		}
		tag = *r->at++;
		if ((tag & 0x1f) == 0x1f)
			return 1;
		len = length(r, ends[depth]);
		if (len < 0)
			return 2;
		add(r, tag << 16 | len);
		if (tag & CONSTRUCTED) {
			if (++depth == DEEPEST)
				return 3;
			ends[depth] = r->at + len;
			continue;
		}
		if (!primitive(r, tag, r->at, len))
			return 4;
		r->at += len;
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct reader *r = (struct reader *)block->scratch;
	u64 result = 0;

	for (u32 i = 0; i < block->len; i++) {
		const u8 *slot = block->input + SLOT * i;
		u32 mistake;

		r->hash = 0xcbf29ce484222325;
		r->at = slot + 2;
		r->end = r->at + load_be16(slot) % (SLOT - 1);
		mistake = values(r);
		result = result * 31 + (mistake ? mistake << 16 | (u32)(r->at - slot) : r->hash);
	}
	return result;
}

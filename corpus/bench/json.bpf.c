// Reads and checks a JSON document (RFC 8259) of len bytes: strings with escapes, numbers, literals, nesting up to
// 64 deep. Hashes every value in order; where the document is wrong, says at which byte. Branches on single bytes.
#include "block.h"

#define WRONG (1ULL << 63)

enum { VALUE, FIRST_VALUE, KEY, FIRST_KEY, AFTER };

static inline __attribute__((always_inline)) int is_digit(u32 c)
{
	return c - '0' < 10;
}

static inline __attribute__((always_inline)) int is_hex(u32 c)
{
	return is_digit(c) || (c | 32) - 'a' < 6;
}

KERNEL u64 prog(struct block *block)
{
	const u8 *text = block->input;
	u32 n = block->len, at = 0, depth = 0, state = VALUE, c, i;
	u64 objects = 0, hash = 0, part;

	/* One byte more than the document can be looked at. */
	if (n >= AREA)
		return WRONG;
	for (;;) {
		while (at < n && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r'))
			at++;
		if (at >= n)
			break;
		c = text[at++];
		if (state == AFTER) {
			u32 object = objects & 1;

			if (!depth)
				return WRONG | at;
			if (c == ',') {
				state = object ? KEY : VALUE;
				continue;
			}
			if (c != (object ? '}' : ']'))
				return WRONG | at;
			objects >>= 1;
			depth--;
			hash = hash * 31 + 4;
			continue;
		}
		if ((state == FIRST_KEY && c == '}') || (state == FIRST_VALUE && c == ']')) {
			objects >>= 1;
			depth--;
			state = AFTER;
			hash = hash * 31 + 4;
			continue;
		}
		if (c == '"') {
			part = 5;
			for (;;) {
				if (at >= n)
					return WRONG | at;
				c = text[at++];
				if (c == '"')
					break;
				if (c < ' ')
					return WRONG | at;
				if (c == '\\') {
					c = text[at++];
					if (c == 'u') {
						for (i = 0; i < 4; i++, at++)
							if (at >= n || !is_hex(text[at]))
								return WRONG | at;
					} else if (c != '"' && c != '\\' && c != '/' && c != 'b' && c != 'f' &&
						   c != 'n' && c != 'r' && c != 't') {
						return WRONG | at;
					}
					c += 256;
				}
				part = part * 33 + c;
			}
			hash = hash * 31 + part;
			if (state == KEY || state == FIRST_KEY) {
				while (at < n && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' ||
						  text[at] == '\r'))
					at++;
				if (at >= n || text[at++] != ':')
					return WRONG | at;
				state = VALUE;
				continue;
			}
			state = AFTER;
			continue;
		}
		if (state == KEY || state == FIRST_KEY)
			return WRONG | at;
		if (c == '{' || c == '[') {
			if (depth == 64)
				return WRONG | at;
			objects = objects << 1 | (c == '{');
			depth++;
			hash = hash * 31 + c;
			state = c == '{' ? FIRST_KEY : FIRST_VALUE;
			continue;
		}
		state = AFTER;
		if (c == '-' || is_digit(c)) {
			u32 negative = c == '-', digits = 0, scale = 0, exponent = 0;

			if (negative)
				c = text[at++];
			if (!is_digit(c))
				return WRONG | at;
			part = c - '0';
			if (c != '0')
				for (; at < n && is_digit(text[at]); at++)
					part = part * 10 + (text[at] - '0');
			if (at < n && text[at] == '.') {
				at++;
				for (; at < n && is_digit(text[at]); at++, scale++)
					part = part * 10 + (text[at] - '0');
				if (!scale)
					return WRONG | at;
			}
			if (at < n && (text[at] | 32) == 'e') {
				at++;
				if (at < n && (text[at] == '+' || text[at] == '-'))
					scale += text[at++] == '-' ? 1 << 16 : 0;
				for (; at < n && is_digit(text[at]); at++, digits++)
					exponent = exponent * 10 + (text[at] - '0');
				if (!digits)
					return WRONG | at;
			}
			hash = (hash * 31 + (negative ? -part : part)) * 31 + ((u64)exponent << 32 | scale);
			continue;
		}
		if (c == 't' && n - at >= 3 && text[at] == 'r' && text[at + 1] == 'u' && text[at + 2] == 'e') {
			at += 3;
			hash = hash * 31 + 1;
		} else if (c == 'f' && n - at >= 4 && text[at] == 'a' && text[at + 1] == 'l' && text[at + 2] == 's' &&
			   text[at + 3] == 'e') {
			at += 4;
			hash = hash * 31 + 2;
		} else if (c == 'n' && n - at >= 3 && text[at] == 'u' && text[at + 1] == 'l' && text[at + 2] == 'l') {
			at += 3;
			hash = hash * 31 + 3;
		} else {
			return WRONG | at;
		}
	}
	return depth || state != AFTER ? WRONG | at : hash & ~WRONG;
}

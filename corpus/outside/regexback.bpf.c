// A backtracking matcher for regular expressions with . * + ? ^ $ and classes, tried at each place of len bytes of text. Counts
// the matches of each expression.
// build: -fno-builtin
#include "outside.h"

static const char *class_end(const char *re)
{
	re++;
	if (*re == '^')
		re++;
	do
		re++;
	while (*re != ']');
	return re + 1;
}

static int in_class(const char *re, u8 c)
{
	int negative = re[1] == '^', found = 0;

	for (re += 1 + negative; *re != ']'; re++) {
		if (re[1] == '-' && re[2] != ']') {
			found |= c >= (u8)re[0] && c <= (u8)re[2];
			re += 2;
		} else {
			found |= c == (u8)*re;
		}
	}
	return found != negative;
}

static int one(const char *re, const u8 *text, const u8 *end)
{
	if (text == end)
		return 0;
	if (*re == '[')
		return in_class(re, *text);
	return *re == '.' || (u8)*re == *text;
}

/* The end of a match of re at text. */
static const u8 *match(const char *re, const u8 *text, const u8 *end)
{
	for (;;) {
		const char *next;
		const u8 *at;

		if (!*re)
			return text;
		if (re[0] == '$' && !re[1])
			return text == end ? text : NULL;
		next = *re == '[' ? class_end(re) : re + 1;
		if (*next == '*' || *next == '+') {
			for (at = text; one(re, at, end); at++)
				;
			for (; at >= text + (*next == '+'); at--) {
				const u8 *found = match(next + 1, at, end);

				if (found)
					return found;
			}
			return NULL;
		}
		if (*next == '?') {
			if (one(re, text, end)) {
				const u8 *found = match(next + 1, text + 1, end);

				if (found)
					return found;
			}
			re = next + 1;
			continue;
		}
		if (!one(re, text, end))
			return NULL;
		text++;
		re = next;
	}
}

static u32 count(const char *re, const u8 *text, const u8 *end)
{
	u32 found = 0;

	if (*re == '^')
		return match(re + 1, text, end) != NULL;
	while (text < end) {
		const u8 *after = match(re, text, end);

		if (after) {
			found++;
			text = after > text ? after : text + 1;
		} else {
			text++;
		}
	}
	return found;
}

WORKLOAD u64 prog(struct block *block)
{
	static const char expressions[7][24] = {
		"[a-z]+ing", "the", "[A-Z][a-z]* [a-z]+", "[0-9]+[.][0-9]+", "e.*a", "colou?r", "[^ ]+ [^ ]+$",
	};
	const u8 *line = block->input, *end = line + block->len;
	u64 result = 0;

	while (line < end) {
		const u8 *stop = line;

		while (stop < end && *stop != '\n')
			stop++;
		for (u32 i = 0; i < ARRAY_SIZE(expressions); i++)
			result = result * 31 + count(expressions[i], line, stop);
		line = stop + 1;
	}
	return result;
}

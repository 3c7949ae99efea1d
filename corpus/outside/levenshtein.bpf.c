// The Levenshtein distance of each pair of neighbours among len words that end with a zero, by one row of the table.
// build: -fno-builtin
#include "outside.h"

static u32 length(const u8 *word)
{
	u32 n = 0;

	while (word[n])
		n++;
	return n;
}

static u32 min(u32 a, u32 b)
{
	return a < b ? a : b;
}

static u32 distance(u16 *row, const u8 *a, const u8 *b)
{
	u32 n = length(a), m = length(b), i, j;

	for (j = 0; j <= m; j++)
		row[j] = j;
	for (i = 1; i <= n; i++) {
		u32 diagonal = row[0];

		row[0] = i;
		for (j = 1; j <= m; j++) {
			u32 above = row[j];

			row[j] = min(min(above + 1, row[j - 1] + 1u), diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[m];
}

WORKLOAD u64 prog(struct block *block)
{
	const u8 *word = block->input;
	u64 result = 0;

	for (u32 i = 1; i < block->len; i++) {
		const u8 *next = word + length(word) + 1;

		result = result * 31 + distance((u16 *)block->scratch, word, next);
		word = next;
	}
	return result;
}

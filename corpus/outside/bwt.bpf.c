// The Burrows-Wheeler transform of len bytes: a suffix array by doubling (Manber and Myers) with counting sorts, the last column,
// and back again to compare. A digest of the last column, and where the whole text is among the suffixes.
// build: -fno-builtin
#include "outside.h"

#define MOST 2048

struct state {
	u16 order[MOST], rank[MOST], by_second[MOST], new_rank[MOST];
	u16 count[MOST + 257];
	u16 lesser[MOST + 1]; /* for each row of the table, that of the suffix one longer */
	u8 column[MOST + 1];
};

/* Sorts `by_second` by rank into `order`, and what is equal stays as it is. */
static void sort_by_rank(struct state *s, u32 n, u32 ranks)
{
	u32 i;

	memset(s->count, 0, (ranks + 1) * sizeof(s->count[0]));
	for (i = 0; i < n; i++)
		s->count[s->rank[i] + 1]++;
	for (i = 1; i <= ranks; i++)
		s->count[i] += s->count[i - 1];
	for (i = 0; i < n; i++)
		s->order[s->count[s->rank[s->by_second[i]]]++] = s->by_second[i];
}

static int same(const struct state *s, u32 a, u32 b, u32 n, u32 step)
{
	u32 second_a = a + step < n ? s->rank[a + step] + 1 : 0, second_b = b + step < n ? s->rank[b + step] + 1 : 0;

	return s->rank[a] == s->rank[b] && second_a == second_b;
}

static void sort_suffixes(struct state *s, const u8 *text, u32 n)
{
	u32 ranks = 256, step, i, to;

	for (i = 0; i < n; i++) {
		s->rank[i] = text[i];
		s->by_second[i] = i;
	}
	sort_by_rank(s, n, ranks);
	for (step = 1;; step *= 2) {
		to = 0;
		for (i = step < n ? n - step : 0; i < n; i++)
			s->by_second[to++] = i;
		for (i = 0; i < n; i++)
			if (s->order[i] >= step)
				s->by_second[to++] = s->order[i] - step;
		sort_by_rank(s, n, ranks);
		ranks = 0;
		for (i = 0; i < n; i++) {
			if (i && !same(s, s->order[i - 1], s->order[i], n, step))
				ranks++;
			s->new_rank[s->order[i]] = ranks;
		}
		memcpy(s->rank, s->new_rank, n * sizeof(s->rank[0]));
		if (++ranks == n)
			return;
	}
}

/* The first row is the empty suffix; that of the whole text has no byte before it. */
static u32 last_column(struct state *s, const u8 *text, u32 n)
{
	u32 whole = 0, i;

	s->column[0] = text[n - 1];
	for (i = 0; i < n; i++) {
		if (s->order[i]) {
			s->column[i + 1] = text[s->order[i] - 1];
		} else {
			s->column[i + 1] = 0;
			whole = i + 1;
		}
	}
	return whole;
}

/* Whether the last column gives the text, which is read from its end. */
static int restores(struct state *s, const u8 *text, u32 n, u32 whole)
{
	u32 row = 0, i;

	memset(s->count, 0, 257 * sizeof(s->count[0]));
	for (i = 0; i <= n; i++)
		if (i != whole)
			s->count[s->column[i] + 1]++;
	for (i = 1; i < 257; i++)
		s->count[i] += s->count[i - 1];
	for (i = 0; i <= n; i++)
		if (i != whole)
			s->lesser[i] = ++s->count[s->column[i]];
	for (i = n; i-- > 0; row = s->lesser[row])
		if (row == whole || s->column[row] != text[i])
			return 0;
	return row == whole;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	u32 n = block->len, whole;

	if (!n || n > MOST)
		return 0;
	sort_suffixes(s, block->input, n);
	whole = last_column(s, block->input, n);
	return restores(s, block->input, n, whole) ? digest(s->column, n + 1) ^ whole : 0;
}

// Finds all words of a list in a text by the automaton of Aho and Corasick (1975), in capitals or not. The input, len bytes, has the
// words, each with a zero after it, then an empty word and the text. A digest of words found and where.
// build: -fno-builtin
#include "outside.h"

#define LETTERS 27 /* the first is for all that is no letter */
#define STATES 512

struct automaton {
	u16 next[STATES][LETTERS];
	u16 fail[STATES], output[STATES], suffix[STATES]; /* suffix: the next with output, by failures */
	u16 queue[STATES];
	u32 states, words;
};

static u32 letter(u8 c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A' + 1;
	return c >= 'a' && c <= 'z' ? c - 'a' + 1 : 0;
}

static u32 new_state(struct automaton *a)
{
	u32 state = a->states++;

	memset(a->next[state], 0, sizeof(a->next[state]));
	a->fail[state] = a->output[state] = a->suffix[state] = 0;
	return state;
}

/* Enters the words; the place after them. */
static const u8 *enter(struct automaton *a, const u8 *p, const u8 *end)
{
	a->states = a->words = 0;
	new_state(a);
	for (; p < end && *p; p++) {
		u32 state = 0;

		for (; p < end && *p; p++) {
			u32 c = letter(*p);

			if (!a->next[state][c]) {
				if (a->states == STATES)
					return end;
				a->next[state][c] = new_state(a);
			}
			state = a->next[state][c];
		}
		if (!a->output[state])
			a->output[state] = ++a->words;
	}
	return p + 1;
}

/* Breadth first: where to go on when no word goes on, and all moves that follow. */
static void complete(struct automaton *a)
{
	u32 head = 0, tail = 0, c;

	for (c = 0; c < LETTERS; c++)
		if (a->next[0][c])
			a->queue[tail++] = a->next[0][c];
	while (head < tail) {
		u32 state = a->queue[head++], fail = a->fail[state];

		a->suffix[state] = a->output[fail] ? fail : a->suffix[fail];
		for (c = 0; c < LETTERS; c++) {
			u32 child = a->next[state][c];

			if (!child) {
				a->next[state][c] = a->next[fail][c];
				continue;
			}
			a->fail[child] = a->next[fail][c];
			a->queue[tail++] = child;
		}
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct automaton *a = (struct automaton *)block->scratch;
	const u8 *end = block->input + block->len, *p = enter(a, block->input, end), *text = p;
	u32 state = 0, found = 0;
	u64 hash = 0;

	complete(a);
	for (; p < end; p++) {
		u32 at;

		state = a->next[state][letter(*p)];
		for (at = a->output[state] ? state : a->suffix[state]; at; at = a->suffix[at]) {
			hash = hash * 31 + ((u64)(p - text) << 16 | a->output[at]);
			found++;
		}
	}
	return hash * 31 + found;
}

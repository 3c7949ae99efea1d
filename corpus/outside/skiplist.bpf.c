// A skip list: inserts len keys with random heights, removes every third, and finds the first key not below each of as many.
// build: -fno-builtin
#include "outside.h"

#define LEVELS 10
#define END 0xffff

struct node {
	u32 key;
	u16 next[LEVELS];
};

struct list {
	u32 count, random;
	struct node nodes[2048]; /* the first is the head */
};

static u32 height(struct list *l)
{
	u32 levels = 1, bits;

	l->random = l->random * 1664525 + 1013904223;
	for (bits = l->random >> 8; levels < LEVELS && (bits & 3) == 0; bits >>= 2)
		levels++;
	return levels;
}

/* On each level the last node whose key is below; the node after the one on the lowest. */
static u32 find(const struct list *l, u32 key, u16 *before)
{
	u32 at = 0;

	for (int level = LEVELS - 1; level >= 0; level--) {
		while (l->nodes[at].next[level] != END && l->nodes[l->nodes[at].next[level]].key < key)
			at = l->nodes[at].next[level];
		before[level] = at;
	}
	return l->nodes[at].next[0];
}

static void insert(struct list *l, u32 key)
{
	u16 before[LEVELS];
	u32 found = find(l, key, before), levels = height(l), node;

	if (found != END && l->nodes[found].key == key)
		return;
	node = ++l->count;
	l->nodes[node].key = key;
	for (u32 level = 0; level < levels; level++) {
		l->nodes[node].next[level] = l->nodes[before[level]].next[level];
		l->nodes[before[level]].next[level] = node;
	}
}

static int delete(struct list *l, u32 key)
{
	u16 before[LEVELS];
	u32 found = find(l, key, before);

	if (found == END || l->nodes[found].key != key)
		return 0;
	for (u32 level = 0; level < LEVELS && l->nodes[before[level]].next[level] == found; level++)
		l->nodes[before[level]].next[level] = l->nodes[found].next[level];
	return 1;
}

WORKLOAD u64 prog(struct block *block)
{
	struct list *l = (struct list *)block->scratch;
	u32 n = block->len, i, found;
	u16 before[LEVELS];
	u64 result = 0;

	l->count = 0;
	l->random = 1;
	memset(l->nodes[0].next, 0xff, sizeof(l->nodes[0].next));
	for (i = 0; i < n; i++)
		insert(l, block->input32[i]);
	for (i = 0; i < n; i += 3)
		result += delete(l, block->input32[i]);
	for (i = 0; i < n; i++) {
		found = find(l, block->input32[n + i], before);
		result = result * 31 + (found == END ? 0 : l->nodes[found].key);
	}
	return result;
}

// A red-black tree whose nodes refer to each other by number: inserts len keys, checks the rules, and looks up twice as many.
// build: -fno-builtin
#include "outside.h"

#define NIL 0 /* a black node without a key */

struct node {
	u32 key;
	u16 child[2];
	u16 parent;
	u8 red;
};

struct tree {
	u32 count;
	u16 root;
	struct node nodes[4000];
};

static void rotate(struct tree *t, u32 x, int side)
{
	struct node *nodes = t->nodes;
	u32 y = nodes[x].child[!side], parent = nodes[x].parent;

	nodes[x].child[!side] = nodes[y].child[side];
	if (nodes[y].child[side] != NIL)
		nodes[nodes[y].child[side]].parent = x;
	nodes[y].parent = parent;
	if (parent == NIL)
		t->root = y;
	else
		nodes[parent].child[nodes[parent].child[1] == x] = y;
	nodes[y].child[side] = x;
	nodes[x].parent = y;
}

static void insert(struct tree *t, u32 key)
{
	struct node *nodes = t->nodes;
	u32 at = t->root, parent = NIL, z;

	while (at != NIL) {
		parent = at;
		if (nodes[at].key == key)
			return;
		at = nodes[at].child[key > nodes[at].key];
	}
	z = ++t->count;
	nodes[z].key = key;
	nodes[z].child[0] = nodes[z].child[1] = NIL;
	nodes[z].parent = parent;
	nodes[z].red = 1;
	if (parent == NIL)
		t->root = z;
	else
		nodes[parent].child[key > nodes[parent].key] = z;
	while (nodes[nodes[z].parent].red) {
		u32 up = nodes[z].parent, top = nodes[up].parent, uncle;
		int side = nodes[top].child[1] == up;

		uncle = nodes[top].child[!side];
		if (nodes[uncle].red) {
			nodes[up].red = nodes[uncle].red = 0;
			nodes[top].red = 1;
			z = top;
			continue;
		}
		if (nodes[up].child[!side] == z) {
			z = up;
			rotate(t, z, side);
			up = nodes[z].parent;
		}
		nodes[up].red = 0;
		nodes[top].red = 1;
		rotate(t, top, !side);
	}
	nodes[t->root].red = 0;
}

static u32 depth_of(const struct tree *t, u32 key)
{
	u32 at = t->root, depth = 1;

	for (; at != NIL; depth++) {
		if (t->nodes[at].key == key)
			return depth;
		at = t->nodes[at].child[key > t->nodes[at].key];
	}
	return 0;
}

/* In order, by the links to parents; the number of nodes, or 0 if a rule is broken. */
static u32 check(const struct tree *t)
{
	const struct node *nodes = t->nodes;
	u32 at = t->root, seen = 0, last = 0;

	while (nodes[at].child[0] != NIL)
		at = nodes[at].child[0];
	while (at != NIL) {
		if ((seen++ && nodes[at].key <= last) || (nodes[at].red && nodes[nodes[at].parent].red))
			return 0;
		last = nodes[at].key;
		if (nodes[at].child[1] != NIL) {
			at = nodes[at].child[1];
			while (nodes[at].child[0] != NIL)
				at = nodes[at].child[0];
			continue;
		}
		while (nodes[at].parent != NIL && nodes[nodes[at].parent].child[1] == at)
			at = nodes[at].parent;
		at = nodes[at].parent;
	}
	return seen;
}

WORKLOAD u64 prog(struct block *block)
{
	struct tree *t = (struct tree *)block->scratch;
	u32 n = block->len, i;
	u64 result = 0;

	t->count = 0;
	t->root = NIL;
	t->nodes[NIL].red = 0;
	for (i = 0; i < n; i++)
		insert(t, block->input32[i]);
	if (check(t) != t->count)
		return 0;
	for (i = 0; i < 2 * n; i++)
		result = result * 31 + depth_of(t, block->input32[i]);
	return result;
}

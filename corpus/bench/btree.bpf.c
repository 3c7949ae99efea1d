// A B-tree with up to 15 keys a node: len insertions or additions, 2 * len look-ups of which many miss, then a walk in
// order. Searches in small arrays that must be moved, nodes found through indices.
// build: -fno-builtin
#include "block.h"

#define MOST 15
#define NODES 400

struct node {
	u16 count, leaf;
	u32 keys[MOST], values[MOST];
	u16 child[MOST + 1];
};

struct tree {
	u32 used, root;
	struct node nodes[NODES];
	u32 path[16], place[16];
};

/* Moves the upper half of a full child to a new node, its middle key to the parent, where there is room. */
static inline __attribute__((always_inline)) void split(struct tree *tree, struct node *parent, u32 at)
{
	struct node *full = &tree->nodes[parent->child[at]], *right = &tree->nodes[tree->used];
	u32 i;

	right->leaf = full->leaf;
	right->count = MOST / 2;
	for (i = 0; i < MOST / 2; i++) {
		right->keys[i] = full->keys[i + MOST / 2 + 1];
		right->values[i] = full->values[i + MOST / 2 + 1];
	}
	if (!full->leaf)
		for (i = 0; i <= MOST / 2; i++)
			right->child[i] = full->child[i + MOST / 2 + 1];
	full->count = MOST / 2;
	for (i = parent->count; i > at; i--) {
		parent->keys[i] = parent->keys[i - 1];
		parent->values[i] = parent->values[i - 1];
		parent->child[i + 1] = parent->child[i];
	}
	parent->keys[at] = full->keys[MOST / 2];
	parent->values[at] = full->values[MOST / 2];
	parent->child[at + 1] = tree->used++;
	parent->count++;
}

static inline __attribute__((always_inline)) u32 position(const struct node *node, u32 key)
{
	u32 at = 0;

	while (at < node->count && node->keys[at] < key)
		at++;
	return at;
}

KERNEL u64 prog(struct block *block)
{
	struct tree *tree = (struct tree *)block->scratch;
	u32 n = block->len, i, at, depth = 0, k;
	u64 hash = 0;
	struct node *node;

	if (n > 2048)
		return 0;
	tree->used = 1;
	tree->root = 0;
	tree->nodes[0].count = 0;
	tree->nodes[0].leaf = 1;
	for (i = 0; i < n; i++) {
		u32 key = block->input32[i] & 8191;

		node = &tree->nodes[tree->root];
		if (node->count == MOST) {
			u32 root = tree->used++;

			node = &tree->nodes[root];
			node->count = node->leaf = 0;
			node->child[0] = tree->root;
			tree->root = root;
			split(tree, node, 0);
		}
		for (;;) {
			at = position(node, key);
			if (at < node->count && node->keys[at] == key) {
				node->values[at] += i;
				break;
			}
			if (node->leaf) {
				for (k = node->count; k > at; k--) {
					node->keys[k] = node->keys[k - 1];
					node->values[k] = node->values[k - 1];
				}
				node->keys[at] = key;
				node->values[at] = i;
				node->count++;
				break;
			}
			if (tree->nodes[node->child[at]].count == MOST) {
				split(tree, node, at);
				if (tree->used >= NODES - 2)
					return 0;
				if (node->keys[at] == key) {
					node->values[at] += i;
					break;
				}
				at += node->keys[at] < key;
			}
			node = &tree->nodes[node->child[at]];
		}
	}
	for (i = 0; i < 2 * n; i++) {
		u32 key = block->input32[n / 2 + i] & 8191;

		node = &tree->nodes[tree->root];
		for (;;) {
			at = position(node, key);
			if (at < node->count && node->keys[at] == key) {
				hash = hash * 31 + node->values[at];
				break;
			}
			if (node->leaf)
				break;
			node = &tree->nodes[node->child[at]];
		}
	}
	/* The path holds the nodes above; place is the next key of each. */
	tree->path[0] = tree->root;
	tree->place[0] = 0;
	for (;;) {
		node = &tree->nodes[tree->path[depth & 15]];
		at = tree->place[depth & 15]++;
		if (node->leaf) {
			for (k = 0; k < node->count; k++)
				hash = hash * 31 + ((u64)node->keys[k] << 32 | node->values[k]);
			at = node->count + 1;
		} else if (at) {
			if (at <= node->count)
				hash = hash * 31 + ((u64)node->keys[at - 1] << 32 | node->values[at - 1]);
		}
		if (at > node->count) {
			if (!depth)
				return hash;
			depth--;
			continue;
		}
		depth++;
		tree->path[depth & 15] = node->child[at];
		tree->place[depth & 15] = 0;
	}
}

// A trie of IPv4 prefixes with a node per bit: len routes of 8 to 24 bits, then the longest match of four times as many
// addresses, most of them inside a route.
// build: -fno-builtin
#include "outside.h"

struct node {
	u16 child[2];
	u16 route;
};

struct trie {
	u32 count;
	struct node nodes[10000];
};

static u32 new_node(struct trie *t)
{
	struct node *node = &t->nodes[t->count];

	node->child[0] = node->child[1] = node->route = 0;
	return t->count++;
}

static void insert(struct trie *t, u32 prefix, u32 bits, u32 route)
{
	u32 at = 0;

	for (u32 i = 0; i < bits; i++) {
		u32 bit = prefix >> (31 - i) & 1;

		if (!t->nodes[at].child[bit]) {
			if (t->count == ARRAY_SIZE(t->nodes))
				return;
			t->nodes[at].child[bit] = new_node(t);
		}
		at = t->nodes[at].child[bit];
	}
	t->nodes[at].route = route;
}

static u32 lookup(const struct trie *t, u32 address)
{
	u32 at = 0, best = t->nodes[0].route;

	do {
		at = t->nodes[at].child[address >> 31];
		address <<= 1;
		if (t->nodes[at].route)
			best = t->nodes[at].route;
	} while (at);
	return best;
}

WORKLOAD u64 prog(struct block *block)
{
	struct trie *t = (struct trie *)block->scratch;
	u32 n = block->len, i, address;
	u64 result = 0;

	t->count = 0;
	new_node(t);
	for (i = 0; i < n; i++)
		insert(t, block->input32[i], 8 + block->input[AREA - 1 - i] % 17, i + 1);
	for (i = 0; i < 4 * n; i++) {
		address = block->input32[i % n] ^ block->input32[n + i] >> (8 + i % 16);
		result = result * 31 + lookup(t, address);
	}
	return result;
}

// Maglev's consistent hashing: fills a table of 4099 entries for len backends, again without one of them, and counts the entries
// that changed their backend.
// build: -fno-builtin
#include "outside.h"

#define TABLE 4099
#define MOST 256

struct state {
	u16 table[2][TABLE];
	struct {
		u32 offset, skip, next;
	} backends[MOST];
};

static u32 hash_of(const u8 *name, u32 seed)
{
	u32 hash = seed;

	for (int i = 0; i < 8; i++) {
		hash += name[i];
		hash += hash << 10;
		hash ^= hash >> 6;
	}
	hash += hash << 3;
	hash ^= hash >> 11;
	return hash + (hash << 15);
}

static void fill(struct state *s, u16 *table, u32 n, u32 without)
{
	u32 filled = 0, i;

	memset(table, 0xff, sizeof(s->table[0]));
	for (i = 0; i < n; i++)
		s->backends[i].next = 0;
	for (;;) {
		for (i = 0; i < n; i++) {
			u32 at;

			if (i == without)
				continue;
			do {
				at = (s->backends[i].offset + (u64)s->backends[i].next * s->backends[i].skip) % TABLE;
				s->backends[i].next++;
			} while (table[at] != 0xffff);
			table[at] = i;
			if (++filled == TABLE)
				return;
		}
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	u32 n = block->len, i, changed = 0;

	if (n > MOST)
		return 0;
	for (i = 0; i < n; i++) {
		s->backends[i].offset = hash_of(block->input + 8 * i, 1) % TABLE;
		s->backends[i].skip = hash_of(block->input + 8 * i, 2) % (TABLE - 1) + 1;
	}
	fill(s, s->table[0], n, n);
	fill(s, s->table[1], n, n / 2);
	for (i = 0; i < TABLE; i++)
		changed += s->table[0][i] != s->table[1][i];
	return digest(s->table, sizeof(s->table)) << 16 | changed;
}

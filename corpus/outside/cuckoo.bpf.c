// A cuckoo hash table of two halves: inserts len keys, moving others out of the way, looks all up and as many others, and removes
// half of them.
// build: -fno-builtin
#include "outside.h"

#define SLOTS 2048 /* of each half */
#define MAX_MOVES 64

struct entry {
	u32 key, value;
};

static u32 place(u32 key, int half)
{
	u32 hash = key * (half ? 0x9e3779b1 : 0x85ebca77);

	return (hash ^ hash >> 16) % SLOTS + half * SLOTS;
}

static struct entry *find(struct entry *table, u32 key)
{
	for (int half = 0; half < 2; half++) {
		struct entry *entry = table + place(key, half);

		if (entry->key == key)
			return entry;
	}
	return NULL;
}

static int insert(struct entry *table, u32 key, u32 value)
{
	struct entry entry = { key, value }, other, *found = find(table, key);
	int half = 0;

	if (found) {
		found->value = value;
		return 1;
	}
	for (int moves = 0; moves < MAX_MOVES; moves++) {
		struct entry *slot = table + place(entry.key, half);

		other = *slot;
		*slot = entry;
		if (!other.key)
			return 1;
		entry = other;
		half = !half;
	}
	return 0;
}

WORKLOAD u64 prog(struct block *block)
{
	struct entry *table = (struct entry *)block->scratch, *found;
	u32 n = block->len, i, failed = 0;
	u64 result = 0;

	memset(table, 0, 2 * SLOTS * sizeof(*table));
	for (i = 0; i < n; i++)
		failed += !insert(table, block->input32[i] | 1, i);
	for (i = 0; i < n; i += 2) {
		found = find(table, block->input32[i] | 1);
		if (found)
			found->key = 0;
	}
	for (i = 0; i < 2 * n; i++) {
		found = find(table, block->input32[i] | 1);
		result = result * 31 + (found ? found->value : ~0u);
	}
	return result ^ failed;
}

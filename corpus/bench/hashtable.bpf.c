// A hash table with open addressing: len insertions or additions, then len look-ups, half of which miss.
// A slot is a key (0: free) and a count.
// build: -fno-builtin
#include "block.h"

#define SLOTS 4096

struct slot {
	u64 key, count;
};

static inline __attribute__((always_inline)) u64 slot_of(u64 key)
{
	return key * 0x9e3779b97f4a7c15ULL >> 52;
}

KERNEL u64 prog(struct block *block)
{
	struct slot *slots = (struct slot *)block->scratch;
	u64 n = block->len, used = 0, sum = 0, i;

	if (n > 2048)
		return 0;
	for (i = 0; i < SLOTS; i++)
		slots[i].key = 0;
	for (i = 0; i < n; i++) {
		u64 key = (block->input64[i] & 2047) + 1, at = slot_of(key);

		while (slots[at].key && slots[at].key != key)
			at = (at + 1) & (SLOTS - 1);
		if (!slots[at].key) {
			slots[at].key = key;
			slots[at].count = 0;
			used++;
		}
		slots[at].count += i;
	}
	for (i = 0; i < n; i++) {
		u64 key = (block->input64[n + i] & 4095) + 1, at = slot_of(key);

		while (slots[at].key && slots[at].key != key)
			at = (at + 1) & (SLOTS - 1);
		if (slots[at].key)
			sum = sum * 31 + slots[at].count;
	}
	return used << 48 ^ sum;
}

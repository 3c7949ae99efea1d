// build: dwarf
// The copying map calls of bpf(2), as the BEGIN/END scripts of 2018 used them. This object keeps its DWARF, as clang
// leaves it by default.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} table SEC(".maps");

struct key {
	char comm[16];
	__u32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct key);
	__type(value, __s64);
	__uint(max_entries, 3);
} counts SEC(".maps");

int BEGIN(void)
{
	struct key key = { "init", 0 };
	__s64 value = -1;
	__u64 cell = 7;
	__u32 index = 2;

	print("%d\n", map_update_elem(&table, &index, &cell, BPF_ANY));
	index = 4;
	print("%d\n", map_update_elem(&table, &index, &cell, BPF_ANY) == 0); /* behind the end */
	for (; key.cpu < 3; key.cpu++, value--)
		print("%d", map_update_elem(&counts, &key, &value, BPF_NOEXIST));
	print("\n");
	print("%d\n", map_update_elem(&counts, &key, &value, BPF_ANY) == 0); /* full */
	key.cpu = 1;
	print("%d\n", map_update_elem(&counts, &key, &value, BPF_NOEXIST) == 0);
	print("%d\n", map_lookup_elem(&counts, &key, &value));
	print("%s %u %lld\n", key.comm, key.cpu, value);
	return 0;
}

void END(void)
{
	struct key key, next;
	__u32 index = 0, after, entries = 0;
	__s64 value, sum = 0;
	__u64 cell;
	void *from = NULL;

	while (map_get_next_key(&table, from, &after) == 0) {
		map_lookup_elem(&table, &after, &cell);
		print("table[%u] = %llu\n", after, cell);
		index = after;
		from = &index;
	}

	/* Delete while walking: take the next key before the entry goes. */
	if (map_get_next_key(&counts, NULL, &key))
		return;
	for (;;) {
		int last = map_get_next_key(&counts, &key, &next) != 0;

		map_lookup_elem(&counts, &key, &value);
		sum += value;
		entries += map_delete_elem(&counts, &key) == 0;
		if (last)
			break;
		key = next;
	}
	print("%u entries deleted, their sum %lld\n", entries, sum);
	print("%d %d\n", map_get_next_key(&counts, NULL, &key) == 0, map_delete_elem(&counts, &key) == 0);
}

LICENSE("GPL");

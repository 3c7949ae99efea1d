// Array: every element exists from the start, none can be deleted.
#include <twinbpf/script.h>

struct cell {
	__u32 count;
	__u16 tag;
	char name[10];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct cell);
	__uint(max_entries, 3);
} cells SEC(".maps");

int BEGIN(void)
{
	struct cell cell = { 5, 6, "seven" }, *found;
	__u32 key;

	for (key = 0; key < 4; key++)
		printf("%d ", bpf_map_lookup_elem(&cells, &key) != NULL);
	printf("\n");
	key = 1;
	printf("%ld", bpf_map_update_elem(&cells, &key, &cell, BPF_NOEXIST)); /* -EEXIST */
	printf(" %ld", bpf_map_update_elem(&cells, &key, &cell, BPF_EXIST));
	printf(" %ld", bpf_map_update_elem(&cells, &key, &cell, 99)); /* -EINVAL */
	printf(" %ld", bpf_map_delete_elem(&cells, &key));            /* -EINVAL */
	key = 3;
	printf(" %ld\n", bpf_map_update_elem(&cells, &key, &cell, BPF_ANY)); /* -E2BIG */
	key = 1;
	found = bpf_map_lookup_elem(&cells, &key);
	if (!found)
		return -1;
	printf("%u %u %s\n", found->count, found->tag, found->name);
	found->count++; /* written in place */
	cell.count = 0;
	map_lookup_elem(&cells, &key, &cell);
	printf("%u\n", cell.count);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

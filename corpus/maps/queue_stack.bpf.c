// Queue and stack: no keys, first in first out against last in first out.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u32);
	__uint(max_entries, 3);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__type(value, __u32);
	__uint(max_entries, 3);
} stack SEC(".maps");

static __noinline void exercise(void *map)
{
	__u32 value = 0, i;

	printf("%ld %ld\n", bpf_map_pop_elem(map, &value), bpf_map_peek_elem(map, &value)); /* -ENOENT */
	for (i = 1; i <= 3; i++)
		printf("%ld ", bpf_map_push_elem(map, &i, BPF_ANY));
	printf("%ld\n", bpf_map_push_elem(map, &i, BPF_ANY)); /* full: -E2BIG */
	bpf_map_peek_elem(map, &value);
	printf("peek %u\n", value);
	printf("%ld\n", bpf_map_push_elem(map, &i, BPF_EXIST)); /* makes room by dropping the oldest */
	while (bpf_map_pop_elem(map, &value) == 0)
		printf("pop %u\n", value);
}

int BEGIN(void)
{
	exercise(&queue);
	exercise(&stack);
	return 0;
}

LICENSE("GPL");

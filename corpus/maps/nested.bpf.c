// Maps of maps, filled at load by the definition.
#include <twinbpf/script.h>

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} red SEC(".maps"), blue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 4);
	__array(values, struct inner);
} by_index SEC(".maps") = {
	.values = { [1] = &red, [3] = &blue },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 4);
	__array(values, struct inner);
} by_number SEC(".maps") = {
	.values = { [0] = &blue, [2] = &red },
};

static __noinline long add(void *outer, __u32 index, __u32 key, __u64 amount)
{
	void *inner = bpf_map_lookup_elem(outer, &index);
	__u64 *cell;

	if (!inner)
		return -1;
	cell = bpf_map_lookup_elem(inner, &key);
	if (!cell)
		return -2;
	*cell += amount;
	return (long)*cell;
}

int BEGIN(void)
{
	__u32 zero = 0;
	__u64 *cell;

	printf("%ld %ld %ld", add(&by_index, 0, 0, 1), add(&by_index, 1, 0, 10), add(&by_index, 3, 0, 20));
	printf(" %ld %ld\n", add(&by_index, 1, 2, 1), add(&by_index, 4, 0, 1));
	printf("%ld %ld %ld\n", add(&by_number, 0, 0, 300), add(&by_number, 2, 0, 400), add(&by_number, 1, 0, 1));
	cell = bpf_map_lookup_elem(&red, &zero);
	if (cell)
		printf("red %llu\n", *cell);
	return 0;
}

void END(void)
{
	__u32 zero = 0;
	__u64 *cell = bpf_map_lookup_elem(&blue, &zero);

	if (cell)
		printf("blue %llu\n", *cell);
}

LICENSE("GPL");

// Per-CPU array and hash: a value for each CPU, the helper sees the one of the CPU it runs on.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} hash SEC(".maps");

static void bump(void *map, __u32 key, __u64 by)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		*value += by;
}

/* The sum over all CPUs; behind the last one the lookup fails. */
static __u64 total(void *map, __u32 key)
{
	__u64 sum = 0, *value;
	__u32 cpu;

	for (cpu = 0; cpu < 8192; cpu++) {
		value = bpf_map_lookup_percpu_elem(map, &key, cpu);
		if (!value)
			break;
		sum += *value;
	}
	return sum;
}

int BEGIN(void)
{
	__u64 value = 100;
	__u32 key = 9, i;

	for (i = 0; i < 10; i++)
		bump(&array, 1, i);
	printf("%llu %llu\n", total(&array, 0), total(&array, 1));
	printf("%ld\n", bpf_map_update_elem(&hash, &key, &value, BPF_NOEXIST));
	bump(&hash, 9, 11);
	bump(&hash, 8, 1000); /* not there */
	printf("%llu %llu\n", total(&hash, 9), total(&hash, 8));
	printf("%ld", bpf_map_delete_elem(&hash, &key));
	printf(" %llu\n", total(&hash, 9));
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// Kernel helpers that call back: bpf_for_each_map_elem and bpf_loop.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 6);
} numbers SEC(".maps");

struct search {
	__u32 limit;
	__u32 sum;
	__u32 last;
};

static long fill(__u64 index, void *ctx)
{
	__u32 key = index, value = index * 10;

	bpf_map_update_elem(&numbers, &key, &value, BPF_ANY);
	++*(__u32 *)ctx;
	return 0;
}

static long until(void *map, const void *key, void *value, void *ctx)
{
	struct search *search = ctx;

	search->sum += *(__u32 *)value;
	search->last = *(__u32 *)key;
	return search->sum >= search->limit;
}

static long double_it(void *map, const void *key, void *value, void *ctx)
{
	*(__u32 *)value *= 2;
	return 0;
}

static long stop_at_seven(__u64 index, void *ctx)
{
	*(__u64 *)ctx = index;
	return index == 7;
}

/* A loop in a loop. */
static long inner(__u64 index, void *ctx)
{
	*(__u64 *)ctx += index;
	return 0;
}

static long outer(__u64 index, void *ctx)
{
	bpf_loop(index, inner, ctx, 0);
	return 0;
}

int BEGIN(void)
{
	struct search search = { .limit = 60 };
	__u32 calls = 0;
	__u64 total = 0;

	printf("%ld loops\n", bpf_loop(6, fill, &calls, 0));
	printf("%u calls\n", calls);
	printf("%ld visited\n", bpf_for_each_map_elem(&numbers, until, &search, 0));
	printf("sum %u at %u\n", search.sum, search.last);
	bpf_for_each_map_elem(&numbers, double_it, NULL, 0);
	search = (struct search){ .limit = 1000 };
	printf("%ld visited\n", bpf_for_each_map_elem(&numbers, until, &search, 0));
	printf("sum %u at %u\n", search.sum, search.last);
	printf("%ld loops\n", bpf_loop(100, stop_at_seven, &total, 0));
	printf("stopped at %llu\n", total);
	total = 0;
	bpf_loop(5, outer, &total, 0);
	printf("nested sum %llu\n", total);
	printf("%ld\n", bpf_loop(1 << 24, inner, &total, 0)); /* more than the helper allows: -E2BIG */
	return 0;
}

LICENSE("GPL");

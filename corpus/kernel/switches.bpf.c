// A tracepoint program and a script that share a global variable and a function.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} switches SEC(".maps");

__u64 total;
const volatile __u64 step = 1;

static __noinline __u64 scaled(__u64 n)
{
	return n * step;
}

SEC("tracepoint/sched/sched_switch")
int on_switch(void *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&switches, &zero);

	if (count)
		*count += scaled(1);
	__sync_fetch_and_add(&total, scaled(1));
	return 0;
}

int BEGIN(void)
{
	printf("a switch counts %llu\n", scaled(1));
	return 0;
}

void END(void)
{
	printf("END, total is a number: %d\n", total + 1 > total);
}

LICENSE("GPL");

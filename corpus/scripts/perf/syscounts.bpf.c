/* System calls by command and number, of a recording with -e raw_syscalls:sys_enter. */
#include <twinbpf/perf_script.h>

struct call {
	char comm[16];
	s64 number;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct call);
	__type(value, u64);
	__uint(max_entries, 10240);
} calls SEC(".maps");

static int row(const void *key, void *value, void *ctx)
{
	const struct call *call = key;

	printf("%-16s %-20s %8llu\n", call->comm, syscall_name(call->number), *(u64 *)value);
	return 0;
}

SEC("EVENT/raw_syscalls:sys_enter") int count(struct sample *s, u64 size)
{
	struct call call = { .number = sample_field("id") };
	u64 one = 1, *old;

	memcpy(call.comm, s->comm, sizeof(call.comm));
	old = bpf_map_lookup_elem(&calls, &call);
	if (old)
		++*old;
	else if (bpf_map_update_elem(&calls, &call, &one, BPF_NOEXIST))
		exit(1);
	return 1;
}

void END(void)
{
	map_for_each(&calls, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

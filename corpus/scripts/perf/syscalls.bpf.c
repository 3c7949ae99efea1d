/* System calls by command: how many, and how long they took; of a recording with -e raw_syscalls:sys_enter
 * -e raw_syscalls:sys_exit. */
#include <twinbpf/perf_script.h>

struct trace_event_raw_sys_enter {
	s64 id;
} RECORDED;

struct call {
	char comm[16];
	s64 id;
};
struct times {
	u64 total, count, max;
};
struct start {
	u64 time;
	s64 id;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct call);
	__type(value, struct times);
	__uint(max_entries, 10240);
} calls SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, s32);
	__type(value, struct start);
	__uint(max_entries, 10240);
} starts SEC(".maps");

SEC("EVENT/raw_syscalls:sys_enter") int enter(struct sample *s, u64 size)
{
	const struct trace_event_raw_sys_enter *e = s->raw;
	struct start start = { .time = s->time, .id = e->id };

	if (bpf_map_update_elem(&starts, &s->tid, &start, BPF_ANY))
		exit(1);
	return 1;
}

SEC("EVENT/raw_syscalls:sys_exit") int leave(struct sample *s, u64 size)
{
	struct start *start = bpf_map_lookup_elem(&starts, &s->tid);
	struct times first = { 0 }, *times;
	struct call call;
	u64 time;

	if (!start)
		return 1;
	call.id = start->id;
	memcpy(call.comm, s->comm, sizeof(call.comm));
	time = s->time - start->time;
	bpf_map_delete_elem(&starts, &s->tid);
	bpf_map_update_elem(&calls, &call, &first, BPF_NOEXIST);
	times = bpf_map_lookup_elem(&calls, &call);
	if (!times)
		exit(1);
	times->count++;
	times->total += time;
	if (time > times->max)
		times->max = time;
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	const struct call *call = key;
	const struct times *times = value;

	printf("%-16s %-20s %8llu %12llu %10llu %10llu\n", call->comm, syscall_name(call->id), times->count,
	       times->total / 1000, times->total / times->count / 1000, times->max / 1000);
	return 0;
}

void END(void)
{
	printf("%-16s %-20s %8s %12s %10s %10s\n", "COMMAND", "CALL", "CALLS", "TOTAL us", "MEAN us", "MAX us");
	map_for_each(&calls, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

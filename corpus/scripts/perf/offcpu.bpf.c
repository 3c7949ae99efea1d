/* Microseconds that threads were off the CPU, by the stack that left it: `comm;main;read 1200`, as flame graphs take it; of a
 * recording with -g -e sched:sched_switch. */
#include <twinbpf/perf_script.h>

struct trace_event_raw_sched_switch {
	s32 next_pid;
} RECORDED;

struct stack {
	char text[1000];
};
struct left {
	u64 time;
	struct stack stack;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, s32);
	__type(value, struct left);
	__uint(max_entries, 4096);
} away SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct stack);
	__type(value, u64);
	__uint(max_entries, 10240);
} usecs SEC(".maps");

static struct left left;

SEC("EVENT/sched:sched_switch") int leave(struct sample *s, u64 size)
{
	const struct trace_event_raw_sched_switch *e = s->raw;
	s32 tid = e->next_pid;
	struct left *before = bpf_map_lookup_elem(&away, &tid);
	u64 none = 0, *sum;
	int length;

	if (before) {
		bpf_map_update_elem(&usecs, &before->stack, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&usecs, &before->stack);
		if (!sum)
			exit(1);
		*sum += (s->time - before->time) / 1000;
		bpf_map_delete_elem(&away, &tid);
	}
	if (!s->tid)
		return 1; /* idle */
	memset(&left, 0, sizeof(left));
	left.time = s->time;
	length = snprintf(left.stack.text, sizeof(left.stack.text), "%s;", s->comm);
	sample_stack(left.stack.text + length, sizeof(left.stack.text) - length);
	if (bpf_map_update_elem(&away, &s->tid, &left, BPF_ANY))
		exit(1);
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	print_folded(key, *(u64 *)value);
	return 0;
}

void END(void)
{
	map_for_each(&usecs, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

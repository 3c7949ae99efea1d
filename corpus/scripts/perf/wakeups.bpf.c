/* Microseconds from the wakeup of a thread to its run, of a recording with -e sched:sched_wakeup -e sched:sched_switch. */
#include <twinbpf/perf_script.h>

struct trace_event_raw_sched_wakeup {
	s32 pid;
} RECORDED;
struct trace_event_raw_sched_switch {
	s32 next_pid;
} RECORDED;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, s32);
	__type(value, u64);
	__uint(max_entries, 10240);
} woken SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, HIST_SLOTS);
} usecs SEC(".maps");

SEC("EVENT/sched:sched_wakeup") int wakeup(struct sample *s, u64 size)
{
	const struct trace_event_raw_sched_wakeup *e = s->raw;
	s32 tid = e->pid;

	if (bpf_map_update_elem(&woken, &tid, &s->time, BPF_ANY))
		exit(1);
	return 1;
}

SEC("EVENT/sched:sched_switch") int run(struct sample *s, u64 size)
{
	const struct trace_event_raw_sched_switch *e = s->raw;
	s32 tid = e->next_pid;
	u64 *since = bpf_map_lookup_elem(&woken, &tid), *count;
	u32 slot;

	if (!since)
		return 1;
	slot = hist_slot((s64)(s->time - *since) / 1000);
	count = bpf_map_lookup_elem(&usecs, &slot);
	if (count)
		++*count;
	bpf_map_delete_elem(&woken, &tid);
	return 1;
}

void END(void)
{
	print_hist(&usecs);
}

LICENSE("GPL");

/* Microseconds from the wakeup of a thread to its run, of a recording with -e sched:sched_wakeup -e sched:sched_switch. */
#include <twinbpf/perf_script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, s64);
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
	s64 tid = sample_field("pid");

	if (bpf_map_update_elem(&woken, &tid, &s->time, BPF_ANY))
		exit(1);
	return 1;
}

SEC("EVENT/sched:sched_switch") int run(struct sample *s, u64 size)
{
	s64 tid = sample_field("next_pid");
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

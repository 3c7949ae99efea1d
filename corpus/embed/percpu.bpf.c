// Counts in a per-CPU array without atomic operations: right as long as no two threads are the same CPU.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} counts SEC(".maps");

// Adds one as often as asked, and returns the CPU.
int work(int times)
{
	__u32 key = 0;

	for (int i = 0; i < times; i++) {
		__u64 *count = bpf_map_lookup_elem(&counts, &key);

		if (!count)
			return -1;
		++*(volatile __u64 *)count;
	}
	return bpf_get_smp_processor_id();
}

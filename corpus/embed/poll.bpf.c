// Waits in a loop for another thread: for a global to change, and for a value of a map.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} shared SEC(".maps");

volatile __u64 flag;
/* The loops have begun. */
volatile __u64 waiting;

int wait_for_global(__u64 old)
{
	waiting = 1;
	while (flag == old)
		;
	return 1;
}

int wait_for_value(__u64 old)
{
	__u32 zero = 0;
	volatile __u64 *value = bpf_map_lookup_elem(&shared, &zero);

	if (!value)
		return 0;
	waiting = 1;
	while (*value == old)
		;
	return 1;
}

/* Another result every time. */
__u64 now(void)
{
	return bpf_ktime_get_ns();
}

LICENSE("GPL");

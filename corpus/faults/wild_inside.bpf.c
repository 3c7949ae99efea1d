// A wild pointer into the sandbox: far behind a map's value, where nothing is.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} numbers SEC(".maps");

int BEGIN(void)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&numbers, &zero);
	volatile __u64 far = 1 << 30;

	return value ? *(int *)((char *)value + far) : 0;
}

LICENSE("GPL");

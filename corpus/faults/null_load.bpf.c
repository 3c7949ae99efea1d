// A load through a null pointer: the forgotten check of a map lookup.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} map SEC(".maps");

int BEGIN(void)
{
	__u32 key = 1;
	__u64 *value = bpf_map_lookup_elem(&map, &key);

	return *value;
}

LICENSE("GPL");

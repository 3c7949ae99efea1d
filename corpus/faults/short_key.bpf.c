// A key that ends before the map's key does, at the very top of the frame.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, char[16]);
	__type(value, __u64);
	__uint(max_entries, 4);
} map SEC(".maps");

int BEGIN(void)
{
	__u64 key = 1; /* 8 bytes, the last of the frame */

	return bpf_map_delete_elem(&map, &key);
}

LICENSE("GPL");

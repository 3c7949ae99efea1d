// build: bpfeb
// Compiled for big-endian machines: every field of the object is in the other byte order. The code keeps clear of
// initialised data wider than a byte, whose order nobody but the program knows.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} map SEC(".maps");

static __noinline __u64 cube(__u64 n)
{
	return n * n * n;
}

int BEGIN(void)
{
	__u64 value = cube(1000);
	__u32 key = 123456789;

	bpf_map_update_elem(&map, &key, &value, BPF_ANY);
	printf("BEGIN %d\n", -5);
	return 0;
}

void END(void)
{
	__u32 key = 123456789;
	__u64 *value = bpf_map_lookup_elem(&map, &key);

	printf("END %llx\n", 0x123456789abcdefULL);
	printf("%llu\n", value ? *value : 0);
}

LICENSE("GPL");

// A map of a kind that exists only in the kernel: a program that does not use it runs.
#include <twinbpf/script.h>

struct {
	__uint(type, 15); /* BPF_MAP_TYPE_SOCKMAP */
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} socks SEC(".maps");

SEC("syscall")
int apart(void *ctx)
{
	return 3;
}

SEC("?syscall")
int lookup(void *ctx)
{
	__u32 key = 1;

	return bpf_map_lookup_elem(&socks, &key) != 0;
}

LICENSE("GPL");

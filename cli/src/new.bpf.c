// Run with: twinbpf run NAME.bpf.c
// With a workload between BEGIN and END: twinbpf run NAME.bpf.c -- sleep 1
//
// For the kernel's types, write #include "vmlinux.h" before the next line; twinbpf makes that header.
#include <twinbpf/script.h>

// What `--set limit=10` changes before the program is loaded.
const volatile int limit = 5;

// A map: BEGIN and END see the same one.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, int);
	__type(value, __u64);
	__uint(max_entries, 64);
} squares SEC(".maps");

// Called for each entry of the map; what is not 0 ends the walk.
static int show(const void *key, void *value, void *ctx)
{
	printf("%3d %6llu\n", *(const int *)key, *(const __u64 *)value);
	return 0;
}

// Before the workload. A result below 0 ends the run at once.
int BEGIN(void)
{
	for (int i = 1; i <= limit; i++) {
		__u64 square = (__u64)i * i;

		bpf_map_update_elem(&squares, &i, &square, BPF_ANY);
	}
	return 0;
}

// After it.
void END(void)
{
	map_for_each(&squares, show, NULL, MAP_BY_KEY);
}

// Kernel programs may use only what has a licence that allows it.
LICENSE("GPL");

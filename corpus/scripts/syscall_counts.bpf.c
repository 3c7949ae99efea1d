// Counts system calls by process name. END prints the counts, the largest first.
//
//     twinbpf run syscall_counts.bpf.o -- make -j2
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct comm {
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct comm);
	__type(value, __u64);
	__uint(max_entries, 10240);
} counts SEC(".maps");

SEC("tracepoint/raw_syscalls/sys_enter")
int count(void *ctx)
{
	struct comm comm = {}; /* older kernels write the name and leave the rest */
	__u64 one = 1, *value;

	bpf_get_current_comm(&comm, sizeof(comm));
	value = bpf_map_lookup_elem(&counts, &comm);
	if (!value) {
		/* Somebody else may have been first. */
		if (bpf_map_update_elem(&counts, &comm, &one, BPF_NOEXIST) == 0)
			return 0;
		value = bpf_map_lookup_elem(&counts, &comm);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

static int show(const void *key, void *value, void *ctx)
{
	printf("%-16s %10llu\n", ((const struct comm *)key)->name, *(__u64 *)value);
	return 0;
}

void END(void)
{
	map_for_each(&counts, show, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

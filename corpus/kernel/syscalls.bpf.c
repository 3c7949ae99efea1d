// The script BEGIN and END were proposed with in 2018: a kernel program counts system calls by command name, END
// prints the counts. One object; the kernel runs one part, userspace the other.
#include <twinbpf/script.h>

struct comm {
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct comm);
	__type(value, __u64);
	__uint(max_entries, 1024);
} counts SEC(".maps");

SEC("raw_tracepoint/sys_enter")
int count(void *ctx)
{
	struct comm comm = {};
	__u64 one = 1, *value;

	bpf_get_current_comm(&comm, sizeof(comm));
	value = bpf_map_lookup_elem(&counts, &comm);
	if (value)
		__sync_fetch_and_add(value, 1);
	else
		bpf_map_update_elem(&counts, &comm, &one, BPF_NOEXIST);
	return 0;
}

static int show(const void *key, void *value, void *ctx)
{
	printf("%18s %16llu\n", ((const struct comm *)key)->name, *(__u64 *)value);
	return 0;
}

int BEGIN(void)
{
	printf("counting system calls\n");
	return 0;
}

void END(void)
{
	map_for_each(&counts, show, NULL, MAP_BY_VALUE | MAP_DESCENDING);
	printf("done\n");
}

LICENSE("GPL");

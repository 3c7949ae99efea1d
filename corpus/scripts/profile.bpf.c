// Samples where processes spend their time: user stacks, innermost first, the most frequent stack last.
//
//     twinbpf run profile.bpf.o -F 199 -p PID
//     twinbpf run profile.bpf.o -F 199 -p PID --flamegraph profile.svg
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

#define DEPTH 127

struct sample {
	__u32 pid;
	int stack;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, 4);
	__uint(value_size, DEPTH * 8);
	__uint(max_entries, 16384);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct sample);
	__type(value, __u64);
	__uint(max_entries, 16384);
} counts SEC(".maps");

SEC("perf_event")
int sample(void *ctx)
{
	struct sample sample = {};
	__u64 one = 1, *count;

	sample.pid = bpf_get_current_pid_tgid() >> 32;
	if (!sample.pid)
		return 0;
	bpf_get_current_comm(sample.comm, sizeof(sample.comm));
	sample.stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (bpf_map_update_elem(&counts, &sample, &one, BPF_NOEXIST) == 0)
		return 0;
	count = bpf_map_lookup_elem(&counts, &sample);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

static char folded[8192];

static int show(const void *key, void *value, void *ctx)
{
	const struct sample *sample = key;

	if (draws_flamegraph()) {
		int length = snprintf(folded, sizeof(folded), "%s;", sample->comm);

		fold_ustack(&stacks, sample->stack, sample->pid, folded + length, sizeof(folded) - length);
		print_folded(folded, *(__u64 *)value);
		return 0;
	}
	printf("%s (%u): %llu samples\n", sample->comm, sample->pid, *(__u64 *)value);
	print_ustack(&stacks, sample->stack, sample->pid);
	return 0;
}

void END(void)
{
	map_for_each(&counts, show, NULL, MAP_BY_VALUE);
}

LICENSE("GPL");

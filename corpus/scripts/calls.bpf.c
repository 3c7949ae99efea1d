// Counts calls of a function of user space by process, and sums its first argument.
//
//     twinbpf run calls.bpf.o --attach called=libc.so.6:malloc -p 1234
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/script.h>

struct calls {
	__u64 count;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct calls);
	__uint(max_entries, 10240);
} calls SEC(".maps");

SEC("uprobe")
int called(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct calls none = {}, *found;

	found = bpf_map_lookup_elem(&calls, &pid);
	if (!found) {
		bpf_map_update_elem(&calls, &pid, &none, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&calls, &pid);
		if (!found)
			return 0;
	}
	__sync_fetch_and_add(&found->count, 1);
	__sync_fetch_and_add(&found->sum, PT_REGS_PARM1(ctx));
	return 0;
}

static int show(const void *key, void *value, void *ctx)
{
	struct calls *found = value;

	printf("%-7u %10llu calls %14llu sum\n", *(__u32 *)key, found->count, found->sum);
	return 0;
}

void END(void)
{
	map_for_each(&calls, show, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

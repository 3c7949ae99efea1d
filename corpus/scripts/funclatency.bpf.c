// A histogram of how long a function of user space takes, in nanoseconds.
//
//     twinbpf run funclatency.bpf.o --attach entered=libc.so.6:malloc --attach returned=libc.so.6:malloc -p 1234
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 10240);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, HIST_SLOTS);
} nanoseconds SEC(".maps");

SEC("uprobe")
int entered(void *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&starts, &tid, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int returned(void *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), slot;
	__u64 *start = bpf_map_lookup_elem(&starts, &tid), *count;

	/* The function was running when this began. */
	if (!start)
		return 0;
	slot = hist_slot(bpf_ktime_get_ns() - *start);
	bpf_map_delete_elem(&starts, &tid);
	count = bpf_map_lookup_elem(&nanoseconds, &slot);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

void END(void)
{
	print_hist(&nanoseconds);
}

LICENSE("GPL");

// Programs at functions of the process: what tests, benches and the plugin host attach.
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, __u64);
	__uint(max_entries, 1024);
} by_argument SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1024);
} starts SEC(".maps");

__u64 latencies[64];
__s64 sum;
char text[16];

static __always_inline void add(__u32 index)
{
	__u64 *count = bpf_map_lookup_elem(&counts, &index);

	if (count)
		*count += 1;
}

SEC("uprobe")
int empty(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe/libhooked.so:add")
int count_calls(struct pt_regs *ctx)
{
	add(0);
	return 0;
}

SEC("uretprobe/libhooked.so:add")
int count_returns(struct pt_regs *ctx)
{
	add(1);
	__sync_fetch_and_add(&sum, PT_REGS_RC(ctx));
	return 0;
}

SEC("uprobe")
int count_by_argument(struct pt_regs *ctx)
{
	__u64 key = PT_REGS_PARM1(ctx) & 255, one = 1;
	__u64 *count = bpf_map_lookup_elem(&by_argument, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&by_argument, &key, &one, BPF_NOEXIST);
	return 0;
}

SEC("uprobe")
int begin(struct pt_regs *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&starts, &thread, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int end(struct pt_regs *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 *start = bpf_map_lookup_elem(&starts, &thread), slot = 0, ns;

	if (!start)
		return 0;
	ns = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&starts, &thread);
	while (ns > 1 && slot < 63) {
		ns >>= 1;
		slot++;
	}
	__sync_fetch_and_add(&latencies[slot], 1);
	return 0;
}

SEC("uprobe")
int read_text(struct pt_regs *ctx)
{
	return bpf_probe_read_user_str(text, sizeof(text), (const void *)PT_REGS_PARM1(ctx));
}

/* What an update alone costs, for comparison. */
SEC("syscall")
int update_hash(__u64 *count)
{
	__u64 n, most = *count;

	for (n = 0; n < most; n++) {
		__u64 key = n & 3;

		bpf_map_update_elem(&by_argument, &key, &n, BPF_ANY);
	}
	return 0;
}

__u64 place[2];

SEC("uprobe")
int keep_place(struct pt_regs *ctx)
{
	place[0] = bpf_get_func_ip(ctx);
	place[1] = bpf_get_attach_cookie(ctx);
	return 0;
}

SEC("uprobe")
int faults(struct pt_regs *ctx)
{
	return *(volatile int *)PT_REGS_PARM2(ctx);
}

char _license[] SEC("license") = "GPL";

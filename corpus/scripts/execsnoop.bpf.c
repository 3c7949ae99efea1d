// Prints a line for each program that is executed: process, parent, path. Records come through a perf event array in the
// order of time.
//
//     twinbpf run execsnoop.bpf.o
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <twinbpf/script.h>

#define PATH 256

/* What we want of the kernel's types; where in them it is, the loader finds out. */
struct task_struct {
	int tgid;
	struct task_struct *real_parent;
} __attribute__((preserve_access_index));

/* sched:sched_process_exec */
struct exec {
	__u64 common;
	__u32 path; /* offset in the lower half, length in the upper */
	int pid;
	int old_pid;
};

struct record {
	__u32 pid;
	__u32 parent;
	char path[PATH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, int);
	__type(value, int);
} records SEC(".maps");

SEC("tracepoint/sched/sched_process_exec")
int executed(struct exec *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct record record = {};

	record.pid = bpf_get_current_pid_tgid() >> 32;
	record.parent = BPF_CORE_READ(task, real_parent, tgid);
	bpf_probe_read_kernel_str(record.path, sizeof(record.path), (void *)ctx + (ctx->path & 0xffff));
	bpf_perf_event_output(ctx, &records, BPF_F_CURRENT_CPU, &record, sizeof(record));
	return 0;
}

int BEGIN(void)
{
	printf("%-7s %-7s %s\n", "PID", "PPID", "PATH");
	return 0;
}

SEC("?EVENT/records")
int on_exec(struct record *record, __u64 size)
{
	printf("%-7u %-7u %s\n", record->pid, record->parent, record->path);
	return 0;
}

LICENSE("GPL");

// Lists the processes: an iterator over all tasks, which the kernel runs once for each.
//
//     twinbpf run tasks.bpf.o
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

/* What we want of the kernel's types; where in them it is, the loader finds out. */
struct seq_file;

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *real_parent;
} __attribute__((preserve_access_index));

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

SEC("iter/task")
int list(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	/* Threads have the pid of their process as tgid. */
	if (task && task->pid == task->tgid)
		BPF_SEQ_PRINTF(ctx->meta->seq, "%7d %7d %s\n", task->tgid, task->real_parent->tgid, task->comm);
	return 0;
}

int BEGIN(void)
{
	printf("%7s %7s %s\n", "PID", "PPID", "COMM");
	return 0;
}

LICENSE("GPL");

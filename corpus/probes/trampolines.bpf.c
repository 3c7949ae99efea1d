// Programs that the kernel's functions call themselves: at entry, at exit, in place of a function, as a security module.
// build: -D__TARGET_ARCH_x86
#include "seen.h"

#define EPERM 1
#define EACCES 13
#define SIGCONT 18

struct seen fentry, fexit, fmod_ret, lsm;

SEC("fentry/vfs_read")
int BPF_PROG(reading, void *file, char *to, unsigned long size)
{
	return saw(&fentry, size);
}

SEC("fexit/vfs_read")
int BPF_PROG(read_done, void *file, char *to, unsigned long size, void *position, long result)
{
	return saw(&fexit, result);
}

/* No signal 0 for the workload: the function is not called then. */
SEC("fmod_ret/security_task_kill")
int BPF_PROG(ask, void *task, void *info, int signal)
{
	saw(&fmod_ret, signal);
	return is_workload() && signal == 0 ? -EPERM : 0;
}

/* And no SIGCONT. */
SEC("lsm/task_kill")
int BPF_PROG(forbid, void *task, void *info, int signal)
{
	saw(&lsm, signal);
	return is_workload() && signal == SIGCONT ? -EACCES : 0;
}

void END(void)
{
	show("fentry", &fentry);
	show("fexit", &fexit);
	show("fmod_ret", &fmod_ret);
	show("lsm", &lsm);
}

LICENSE("GPL");

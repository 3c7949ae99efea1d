// Prints the sleeps that processes ask for with nanosleep(2), and who started these processes.
//
//     twinbpf run naptime.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing sleeps. Hit Ctrl-C to end.\n");
	printf("%-8s %-6s %-16s %-6s %-16s %s\n", "TIME", "PPID", "PCOMM", "PID", "COMM",
	       "SECONDS");
}

SYSCALL(nanosleep, rqtp)
{
	struct task_struct *parent = bpf_get_current_task_btf()->real_parent;
	struct __kernel_timespec nap = {};

	bpf_probe_read_user(&nap, sizeof(nap), rqtp);
	if (nap.tv_sec + nap.tv_nsec == 0)
		return 0;
	printf("%s %-6d %-16s %-6d %-16s %lld.%03lld\n", time_name(nsecs()), parent->pid,
	       parent->comm, pid(), comm(), nap.tv_sec, nap.tv_nsec / 1000000ULL);
	return 0;
}

LICENSE("GPL");

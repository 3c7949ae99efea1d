// Prints the files that processes open, and those that they could not.
//
//     twinbpf run opensnoop.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing open syscalls... Hit Ctrl-C to end.\n");
	printf("%-6s %-16s %4s %3s %s\n", "PID", "COMM", "FD", "ERR", "PATH");
}

SYSCALL(open, filename) { return set(&path, tid(), filename); }
SYSCALL(openat, filename) { return set(&path, tid(), filename); }

static int opened(long ret)
{
	__auto_type name = get(&path, tid());

	if (!name)
		return 0;
	printf("%-6d %-16s %4ld %3ld %s\n", pid(), comm(), ret >= 0 ? ret : -1, ret >= 0 ? 0 : -ret,
	       ustr(name));
	return del(&path, tid());
}

SYSCALL_RET(open, ret) { return opened(ret); }
SYSCALL_RET(openat, ret) { return opened(ret); }

LICENSE("GPL");

// Prints the files of which processes ask for the status.
//
//     twinbpf run statsnoop.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing stat syscalls... Hit Ctrl-C to end.\n");
	printf("%-6s %-16s %3s %s\n", "PID", "COMM", "ERR", "PATH");
}

SYSCALL(statfs, pathname) { return set(&path, tid(), pathname); }
SYSCALL(statx, filename) { return set(&path, tid(), filename); }
SYSCALL(newstat, filename) { return set(&path, tid(), filename); }
SYSCALL(newlstat, filename) { return set(&path, tid(), filename); }

static int done(long ret)
{
	__auto_type name = get(&path, tid());

	if (!name)
		return 0;
	printf("%-6d %-16s %3ld %s\n", pid(), comm(), ret >= 0 ? 0 : -ret, ustr(name));
	return del(&path, tid());
}

SYSCALL_RET(statfs, ret) { return done(ret); }
SYSCALL_RET(statx, ret) { return done(ret); }
SYSCALL_RET(newstat, ret) { return done(ret); }
SYSCALL_RET(newlstat, ret) { return done(ret); }

LICENSE("GPL");

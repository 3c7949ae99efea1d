// Prints the programs that processes execute, with their arguments.
//
//     twinbpf run execsnoop.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("%-10s %-5s %s\n", "TIME(ms)", "PID", "ARGS"); }

static int executed(const void *argv)
{
	printf("%-10llu %-5d ", elapsed() / 1000000, pid());
	join(argv);
	return 0;
}

SYSCALL(execve, argv) { return executed(argv); }
SYSCALL(execveat, argv) { return executed(argv); }

LICENSE("GPL");

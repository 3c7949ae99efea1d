// Counts system calls by their names and by the name of the process.
//
//     twinbpf run syscount.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Counting syscalls... Hit Ctrl-C to end.\n"); }

TP(raw_syscalls, sys_enter)
{
	count(&syscall, args->id);
	count(&process, comm());
	return 0;
}

DISPLAY_MAP(syscall, "title=Top 10 syscalls, columns=syscall count, key=syscall, top=10");
DISPLAY_MAP(process, "title=Top 10 processes, columns=comm count, top=10");

LICENSE("GPL");

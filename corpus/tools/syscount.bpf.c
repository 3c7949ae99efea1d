// Counts system calls by number and by the name of the process.
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

void END(void)
{
	printf("\nTop 10 syscalls IDs:\n");
	print_map(&syscall, 10);
	printf("\nTop 10 processes:\n");
	print_map(&process, 10);
}

LICENSE("GPL");

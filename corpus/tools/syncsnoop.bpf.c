// Prints the calls that write files to their disks.
//
//     twinbpf run syncsnoop.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing sync syscalls... Hit Ctrl-C to end.\n");
	printf("%-9s %-6s %-16s %s\n", "TIME", "PID", "COMM", "EVENT");
}

#define TRACE(call)                                                                 \
	SEC("tp/syscalls/sys_enter_" #call) int call(void *ctx)                     \
	{                                                                           \
		printf("%-9s %-6d %-16s tracepoint:syscalls:sys_enter_" #call "\n", \
		       time_name(nsecs()), pid(), comm());                          \
		return 0;                                                           \
	}

TRACE(sync)
TRACE(syncfs)
TRACE(fsync)
TRACE(fdatasync)
TRACE(sync_file_range)
TRACE(msync)

LICENSE("GPL");

// Histogram of the sizes of requests to disks, by the name of the process.
//
//     twinbpf run bitesize.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Tracing block device I/O... Hit Ctrl-C to end.\n"); }

TP(block, block_rq_issue)
{
	hist(&sizes, args->comm, args->bytes);
	return 0;
}

DISPLAY_MAP(sizes, "title=I/O size by process, unit=bytes");

LICENSE("GPL");

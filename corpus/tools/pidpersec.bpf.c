// Counts new processes by second.
//
//     twinbpf run pidpersec.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Tracing new processes... Hit Ctrl-C to end.\n"); }

TP(sched, sched_process_fork)
{
	count(&forks);
	return 0;
}

DISPLAY_MAP(forks, "title=PIDs/sec, every=1s, clear, time");

LICENSE("GPL");

// Counts new processes by second.
//
//     twinbpf run pidpersec.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Tracing new processes... Hit Ctrl-C to end.\n"); }

TP(sched, sched_process_fork)
{
	count(&_);
	return 0;
}

SEC("TIMER/1s")
void every_second(void)
{
	printf("%s PIDs/sec: ", time_name(nsecs()));
	print_map(&_);
	clear(&_);
}

void END(void) {}

LICENSE("GPL");

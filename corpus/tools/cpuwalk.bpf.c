// Histogram of the CPUs that run something, by samples of each.
//
//     twinbpf run cpuwalk.bpf.c -F 99
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Sampling CPU at 99hz... Hit Ctrl-C to end.\n"); }

SEC("perf_event")
int sample(void *ctx)
{
	if (pid())
		lhist(&cpu, cpu(), 0, 1000, 1);
	return 0;
}

LICENSE("GPL");

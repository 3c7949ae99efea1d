// Prints the load averages each second.
//
//     twinbpf run loads.bpf.c
#include <twinbpf/trace.h>

extern const void avenrun __ksym __weak;
unsigned long loads[3];

void BEGIN(void) { printf("Reading load averages... Hit Ctrl-C to end.\n"); }

SEC("perf_event")
int sample(void *ctx)
{
	if (bpf_probe_read_kernel(loads, sizeof(loads), &avenrun)) {
		printf("the kernel does not show its symbol avenrun\n");
		exit(1);
	}
	return 0;
}

SEC("TIMER/1s")
void every_second(void)
{
	printf("%s load averages: %lu.%03lu %lu.%03lu %lu.%03lu\n", time_name(nsecs()),
	       loads[0] >> 11, loads[0] % 2048 * 1000 >> 11, loads[1] >> 11,
	       loads[1] % 2048 * 1000 >> 11, loads[2] >> 11, loads[2] % 2048 * 1000 >> 11);
}

LICENSE("GPL");

// Histogram of the number of tasks that wait for a CPU, by samples of each.
//
//     twinbpf run runqlen.bpf.c -F 99
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Sampling run queue length at 99 Hertz... Hit Ctrl-C to end.\n"); }

SEC("perf_event")
int sample(void *ctx)
{
	u32 tasks = bpf_get_current_task_btf()->se.cfs_rq->nr_queued;

	lhist(&runqlen, tasks ? tasks - 1 : 0, 0, 100, 1); /* all but the one that runs */
	return 0;
}

LICENSE("GPL");

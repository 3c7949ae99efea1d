// Histogram of the time that threads wait for a CPU.
//
//     twinbpf run runqlat.bpf.c
#include <twinbpf/trace.h>

void BEGIN(void) { printf("Tracing CPU scheduler... Hit Ctrl-C to end.\n"); }

TP(sched, sched_wakeup) { return set(&since, args->pid, nsecs()); }
TP(sched, sched_wakeup_new) { return set(&since, args->pid, nsecs()); }

TP(sched, sched_switch)
{
	if (args->prev_state == 0) /* it could go on */
		set(&since, args->prev_pid, nsecs());
	u64 began = get(&since, args->next_pid);
	if (began)
		hist(&usecs, (nsecs() - began) / 1000);
	return del(&since, args->next_pid);
}

LICENSE("GPL");

// Prints the signals that processes send with kill(2).
//
//     twinbpf run killsnoop.bpf.c
#include <twinbpf/trace.h>

struct signal {
	int pid, number;
};
MAP_HASH(sent, u32, struct signal);

void BEGIN(void)
{
	printf("Tracing kill() signals... Hit Ctrl-C to end.\n");
	printf("%-9s %-6s %-16s %-4s %-6s %s\n", "TIME", "PID", "COMM", "SIG", "TPID", "RESULT");
}

SYSCALL(kill, pid, sig) { return set(&sent, tid(), ((struct signal){pid, sig})); }

SYSCALL_RET(kill, ret)
{
	struct signal signal = get(&sent, tid());

	if (del(&sent, tid()))
		return 0;
	printf("%-9s %-6d %-16s %-4d %-6d %ld\n", time_name(nsecs()), pid(), comm(), signal.number,
	       signal.pid, ret);
	return 0;
}

LICENSE("GPL");

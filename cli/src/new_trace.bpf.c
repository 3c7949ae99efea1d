// A tracing tool: compile and run it with
//
//     twinbpf run NAME.bpf.c -- COMMAND
//
// Programs of TP, SYSCALL and SEC("...") run in the kernel, BEGIN, END, EVENT and TIMER in userspace. printf prints from both.
// `twinbpf list -v 'tp:sched:*'` shows what there is, with its arguments.
#include <twinbpf/trace.h>

const volatile __u32 longest = 0; /* --set longest=MICROSECONDS prints what takes longer */

SYSCALL(openat, filename)
{
	set(&began, tid(), nsecs());
	return 0;
}

SYSCALL_RET(openat, ret)
{
	__u64 start = get(&began, tid());
	__u64 us = (nsecs() - start) / 1000;

	if (!start || is_self())
		return 0;
	del(&began, tid());
	hist(&microseconds, comm(), us);
	if (ret < 0)
		count(&failed, KEY(comm(), (int)ret));
	if (longest && us > longest)
		printf("%s took %llu us\n", comm(), us);
	return 0;
}

LICENSE("GPL");

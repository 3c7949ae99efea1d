// Prints the times that the kernel writes changed pages to disks.
//
//     twinbpf run writeback.bpf.c
#include <twinbpf/trace.h>

/* enum wb_reason */
static const char reasons[8][16] = {"background",    "vmscan",       "sync",
				    "periodic",      "laptop_timer", "fs_free_space",
				    "forker_thread", "foreign_flush"};

void BEGIN(void)
{
	printf("Tracing writeback... Hit Ctrl-C to end.\n");
	printf("%-9s %-8s %-8s %-16s %s\n", "TIME", "DEVICE", "PAGES", "REASON", "ms");
}

TP(writeback, writeback_start) { return set(&start, args->sb_dev, nsecs()); }

TP(writeback, writeback_written)
{
	u64 began = get(&start, args->sb_dev);
	u64 usecs = began ? (nsecs() - began) / 1000 : 0;

	del(&start, args->sb_dev);
	printf("%-9s %-8s %-8lld %-16s %llu.%03llu\n", time_name(nsecs()), args->name,
	       args->nr_pages & 0xffff, reasons[args->reason & 7], usecs / 1000, usecs % 1000);
	return 0;
}

LICENSE("GPL");

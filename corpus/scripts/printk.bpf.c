// bpf_trace_printk and bpf_trace_vprintk, which kernel programs print with, work in a script as well.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

int BEGIN(void)
{
	static const char format[] = "by hand %d\n";

	bpf_printk("plain");
	bpf_printk("three %d %s %lx", -1, "two", 3UL);
	bpf_printk("five %d %d %d %d %d", 1, 2, 3, 4, 5);
	printf("%d\n", bpf_trace_printk(format, sizeof(format), 7) > 0);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// A program for packets on their way through the kernel, of a kind that only newer kernels have.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

SEC("netfilter")
int pass(void *ctx)
{
	return 1;
}

int BEGIN(void)
{
	printf("scripts run\n");
	return 0;
}

LICENSE("GPL");

// Reads the byte behind the packet: the kernel's verifier refuses the program, here it runs until it does it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

SEC("xdp")
int last(struct xdp_md *ctx)
{
	volatile __u8 *end = (void *)(long)ctx->data_end;

	return end[-1] + end[0];
}

LICENSE("GPL");

// A program with a function that another program takes the place of.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__attribute__((noinline)) int verdict(struct xdp_md *ctx)
{
	volatile int pass = XDP_PASS;

	return ctx ? pass : XDP_ABORTED;
}

SEC("xdp")
int base(struct xdp_md *ctx)
{
	return verdict(ctx);
}

SEC("?freplace/verdict")
int drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";

// Tail calls through a prog array filled at load: by protocol, in a chain, and one that calls itself until the limit.
#include "headers.h"

int udp_program(struct xdp_md *ctx);
int tcp_program(struct xdp_md *ctx);
int again(struct xdp_md *ctx);

enum { LOOP = 1, TCP = 6, UDP = 17, NOBODY = 30 };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} jump SEC(".maps") = {
	.values = {
		[LOOP] = (void *)&again,
		[TCP] = (void *)&tcp_program,
		[UDP] = (void *)&udp_program,
	},
};

__u32 rounds;

SEC("xdp")
int udp_program(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int tcp_program(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &jump, UDP); /* a chain of two */
	return XDP_ABORTED;
}

/* Runs once for the first call and then once for each of 33 tail calls; the 34th fails and falls through. */
SEC("xdp")
int again(struct xdp_md *ctx)
{
	rounds++;
	bpf_tail_call(ctx, &jump, LOOP);
	return rounds;
}

SEC("xdp")
int dispatch(struct xdp_md *ctx)
{
	struct ethhdr *eth = DATA(ctx);
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &jump, ip->protocol);
	return XDP_DROP; /* nobody is responsible */
}

SEC("xdp")
int missing(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &jump, NOBODY); /* an empty slot */
	bpf_tail_call(ctx, &jump, 32);     /* behind the end */
	return XDP_TX;
}

LICENSE("GPL");

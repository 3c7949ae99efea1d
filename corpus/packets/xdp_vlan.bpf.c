// Moves the front and the end of a packet: pushes a VLAN tag, pops it, cuts and grows the tail, keeps metadata in front.
#include "headers.h"

SEC("xdp")
int push(struct xdp_md *ctx)
{
	struct vlan_header *vlan;
	struct ethhdr *eth;
	struct ethhdr old;

	eth = DATA(ctx);
	if ((void *)(eth + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	old = *eth;
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*vlan)))
		return XDP_ABORTED;
	eth = DATA(ctx);
	vlan = (void *)(eth + 1);
	if ((void *)(vlan + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	__builtin_memcpy(eth, &old, 12);
	eth->h_proto = bpf_htons(ETH_P_8021Q);
	vlan->tag = bpf_htons(0x123);
	vlan->protocol = old.h_proto;
	return XDP_TX;
}

SEC("xdp")
int pop(struct xdp_md *ctx)
{
	struct ethhdr *eth = DATA(ctx);
	struct vlan_header *vlan = (void *)(eth + 1);
	struct ethhdr old;

	if ((void *)(vlan + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	if (eth->h_proto != bpf_htons(ETH_P_8021Q))
		return XDP_PASS;
	old = *eth;
	old.h_proto = vlan->protocol;
	if (bpf_xdp_adjust_head(ctx, sizeof(*vlan)))
		return XDP_ABORTED;
	eth = DATA(ctx);
	if ((void *)(eth + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	__builtin_memcpy(eth, &old, sizeof(old));
	return XDP_PASS;
}

SEC("xdp")
int cut(struct xdp_md *ctx)
{
	long size = ctx->data_end - ctx->data;

	if (size <= 20)
		return XDP_PASS;
	if (bpf_xdp_adjust_tail(ctx, 20 - size))
		return XDP_ABORTED;
	return ctx->data_end - ctx->data == 20 ? XDP_TX : XDP_DROP;
}

SEC("xdp")
int grow(struct xdp_md *ctx)
{
	void *data, *end;

	if (bpf_xdp_adjust_tail(ctx, 4))
		return XDP_ABORTED;
	data = DATA(ctx);
	end = DATA_END(ctx);
	if (data + 18 > end)
		return XDP_DROP;
	/* New bytes are zero. */
	if (end - data == 18)
		return *(__u32 *)(data + 14) == 0 ? XDP_TX : XDP_DROP;
	return XDP_PASS;
}

SEC("xdp")
int metadata(struct xdp_md *ctx)
{
	__u32 *mark;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark)))
		return XDP_ABORTED;
	mark = (void *)(long)ctx->data_meta;
	if ((void *)(mark + 1) > DATA(ctx))
		return XDP_ABORTED;
	*mark = 0x600d;
	return ctx->data - ctx->data_meta == 4 && *mark == 0x600d ? XDP_PASS : XDP_DROP;
}

LICENSE("GPL");

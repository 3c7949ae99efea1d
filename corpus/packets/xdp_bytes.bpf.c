// Packet bytes by helper: they may lie anywhere in the packet, and a range outside fails with -EINVAL.
#include "headers.h"

SEC("xdp")
int invert(struct xdp_md *ctx)
{
	__u64 size = bpf_xdp_get_buff_len(ctx);
	__u8 bytes[4];
	__u32 i;

	if (size != (__u64)(DATA_END(ctx) - DATA(ctx)))
		return XDP_ABORTED;
	if (bpf_xdp_load_bytes(ctx, 14, bytes, sizeof(bytes)))
		return XDP_DROP;
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = ~bytes[i];
	if (bpf_xdp_store_bytes(ctx, 14, bytes, sizeof(bytes)))
		return XDP_ABORTED;
	return bpf_xdp_load_bytes(ctx, size - 3, bytes, sizeof(bytes)) == -22 ? XDP_TX : XDP_ABORTED;
}

LICENSE("GPL");

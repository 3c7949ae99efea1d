// What hosts see of a packet's run: fields of contexts, room around packets, clones and verdicts without a name.
#include "../packets/headers.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 8);
} ports SEC(".maps");

/* The fields, as the packet's first bytes. */
SEC("xdp")
int fields(struct xdp_md *ctx)
{
	__u32 *words = DATA(ctx), *meta = (void *)(long)ctx->data_meta;

	if ((void *)(words + 4) > DATA_END(ctx))
		return XDP_DROP;
	words[0] = ctx->ingress_ifindex;
	words[1] = ctx->rx_queue_index;
	words[2] = ctx->data - ctx->data_meta;
	if ((void *)(meta + 1) <= DATA(ctx))
		words[3] = meta[0];
	return XDP_TX;
}

/* As long as there is room: first after the packet, then before it. The rest of the packet says how much there was. */
SEC("xdp")
int grow(struct xdp_md *ctx)
{
	__u16 after = 0, before = 0;
	__u8 bytes[4];

	while (after < 5000 && !bpf_xdp_adjust_tail(ctx, 1))
		after++;
	while (before < 5000 && !bpf_xdp_adjust_head(ctx, -1))
		before++;
	bytes[0] = after >> 8, bytes[1] = after, bytes[2] = before >> 8, bytes[3] = before;
	return bpf_xdp_store_bytes(ctx, 0, bytes, sizeof(bytes)) ? XDP_ABORTED : 77;
}

SEC("xdp")
int marks(struct xdp_md *ctx)
{
	__u32 *meta;

	if (bpf_xdp_adjust_meta(ctx, -8))
		return XDP_ABORTED;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 2) > DATA(ctx))
		return XDP_ABORTED;
	meta[0] = 1, meta[1] = 2;
	return bpf_redirect_map(&ports, 3, 0);
}

SEC("tc")
int clones(struct __sk_buff *skb)
{
	__u8 byte = skb->mark;

	bpf_clone_redirect(skb, skb->ifindex + 1, 0);
	bpf_skb_store_bytes(skb, 0, &byte, 1, 0);
	bpf_clone_redirect(skb, skb->ifindex + 2, BPF_F_INGRESS);
	skb->cb[0] = skb->cb[1] + skb->cb[4];
	skb->priority = skb->tstamp >> 32;
	skb->mark = 9;
	return bpf_redirect(skb->ifindex + 3, 0);
}

SEC("tc")
int strange(struct __sk_buff *skb)
{
	return skb->len == 60 ? -5 : TC_ACT_SHOT;
}

SEC("xdp")
int wild(struct xdp_md *ctx)
{
	return *(__u8 *)DATA_END(ctx);
}

LICENSE("GPL");

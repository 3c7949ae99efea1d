// Verifies the IPv4 header checksum, then computes the header's sum anew with bpf_csum_diff after changing the TOS.
#include "headers.h"

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

SEC("xdp")
int checksum(struct xdp_md *ctx)
{
	struct ethhdr *eth = DATA(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct iphdr copy;

	if ((void *)(ip + 1) > DATA_END(ctx) || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)
		return XDP_PASS;
	copy = *ip;
	if (fold(bpf_csum_diff(NULL, 0, (void *)&copy, sizeof(copy), 0)) != 0)
		return XDP_DROP;
	copy.tos = 0xb8;
	copy.check = 0;
	copy.check = fold(bpf_csum_diff(NULL, 0, (void *)&copy, sizeof(copy), 0));
	*ip = copy;
	return XDP_TX;
}

LICENSE("GPL");

// Sends a packet back where it came from: swaps the Ethernet addresses, the IPv4 addresses and the UDP ports. The
// checksums do not change, for they are sums.
#include "headers.h"

SEC("xdp")
int swap(struct xdp_md *ctx)
{
	void *data = DATA(ctx), *end = DATA_END(ctx);
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u8 mac[ETH_ALEN];
	__be32 address;
	__be16 port;

	if ((void *)(udp + 1) > end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
	address = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = address;
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	return XDP_TX;
}

LICENSE("GPL");

// A TC classifier: reads the packet directly and by helper, drops what goes to a blocked port, marks the rest.
#include "headers.h"

const volatile __u16 blocked = 9;

SEC("tc")
int classify(struct __sk_buff *skb)
{
	struct ethhdr *eth = DATA(skb);
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr udp;

	if (skb->len != (__u32)(DATA_END(skb) - DATA(skb)))
		return TC_ACT_PIPE; /* only a part of the packet is here */
	if ((void *)(ip + 1) > DATA_END(skb))
		return TC_ACT_UNSPEC;
	if (skb->protocol != bpf_htons(ETH_P_IP) || eth->h_proto != skb->protocol)
		return TC_ACT_OK;
	if (ip->protocol != IPPROTO_UDP)
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, sizeof(*eth) + ip->ihl * 4, &udp, sizeof(udp)))
		return TC_ACT_STOLEN;
	if (udp.dest == bpf_htons(blocked))
		return TC_ACT_SHOT;
	skb->mark = bpf_ntohs(udp.dest);
	skb->cb[0] = 1;
	return TC_ACT_OK;
}

LICENSE("GPL");

// Source NAT: writes a new source address and port and lets the helpers mend both checksums.
#include "headers.h"
#include <stddef.h>

#define IP_AT ((int)sizeof(struct ethhdr))
#define UDP_AT (IP_AT + (int)sizeof(struct iphdr))

SEC("tc")
int nat(struct __sk_buff *skb)
{
	__be32 old_address, new_address = bpf_htonl(0xc0a80001); /* 192.168.0.1 */
	__be16 old_port, new_port = bpf_htons(40000);
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, IP_AT, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP || ip.ihl != 5)
		return TC_ACT_OK;
	if (bpf_skb_load_bytes(skb, UDP_AT, &old_port, sizeof(old_port)))
		return TC_ACT_SHOT;
	old_address = ip.saddr;
	bpf_l4_csum_replace(skb, UDP_AT + offsetof(struct udphdr, check), old_address, new_address,
			    BPF_F_PSEUDO_HDR | sizeof(old_address));
	bpf_l4_csum_replace(skb, UDP_AT + offsetof(struct udphdr, check), old_port, new_port, sizeof(old_port));
	bpf_l3_csum_replace(skb, IP_AT + offsetof(struct iphdr, check), old_address, new_address, sizeof(old_address));
	bpf_skb_store_bytes(skb, IP_AT + offsetof(struct iphdr, saddr), &new_address, sizeof(new_address), 0);
	bpf_skb_store_bytes(skb, UDP_AT + offsetof(struct udphdr, source), &new_port, sizeof(new_port), 0);
	return TC_ACT_OK;
}

LICENSE("GPL");

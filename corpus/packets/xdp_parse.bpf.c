// An XDP parser: Ethernet, up to two VLAN tags, IPv4 or IPv6, UDP or TCP. Counts by protocol; drops telnet, passes the
// rest, aborts on what is cut short.
#include "headers.h"

enum kind { OTHER, ARP, IPV4_UDP, IPV4_TCP, IPV6_UDP, IPV6_TCP, TRUNCATED, KINDS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, KINDS);
} counts SEC(".maps");

struct cursor {
	void *at, *end;
};

static __always_inline void *take(struct cursor *cursor, __u32 size)
{
	void *header = cursor->at;

	if (header + size > cursor->end)
		return NULL;
	cursor->at = header + size;
	return header;
}

static __always_inline int verdict(enum kind kind, int action)
{
	__u32 key = kind;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return action;
}

static __always_inline int transport(struct cursor *cursor, __u8 protocol, bool six)
{
	struct udphdr *udp;
	struct tcphdr *tcp;

	switch (protocol) {
	case IPPROTO_UDP:
		udp = take(cursor, sizeof(*udp));
		if (!udp)
			return verdict(TRUNCATED, XDP_ABORTED);
		return verdict(six ? IPV6_UDP : IPV4_UDP, XDP_PASS);
	case IPPROTO_TCP:
		tcp = take(cursor, sizeof(*tcp));
		if (!tcp)
			return verdict(TRUNCATED, XDP_ABORTED);
		return verdict(six ? IPV6_TCP : IPV4_TCP, tcp->dest == bpf_htons(23) ? XDP_DROP : XDP_PASS);
	default:
		return verdict(OTHER, XDP_PASS);
	}
}

SEC("xdp")
int parse(struct xdp_md *ctx)
{
	struct cursor cursor = { DATA(ctx), DATA_END(ctx) };
	struct ethhdr *eth = take(&cursor, sizeof(*eth));
	struct vlan_header *vlan;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__be16 protocol;
	int i;

	if (!eth)
		return verdict(TRUNCATED, XDP_ABORTED);
	protocol = eth->h_proto;
	for (i = 0; i < 2; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		vlan = take(&cursor, sizeof(*vlan));
		if (!vlan)
			return verdict(TRUNCATED, XDP_ABORTED);
		protocol = vlan->protocol;
	}
	switch (protocol) {
	case bpf_htons(ETH_P_ARP):
		return verdict(ARP, XDP_PASS);
	case bpf_htons(ETH_P_IP):
		ip = take(&cursor, sizeof(*ip));
		if (!ip || ip->ihl < 5 || !take(&cursor, ip->ihl * 4 - sizeof(*ip)))
			return verdict(TRUNCATED, XDP_ABORTED);
		return transport(&cursor, ip->protocol, false);
	case bpf_htons(ETH_P_IPV6):
		ip6 = take(&cursor, sizeof(*ip6));
		if (!ip6)
			return verdict(TRUNCATED, XDP_ABORTED);
		return transport(&cursor, ip6->nexthdr, true);
	default:
		return verdict(OTHER, XDP_PASS);
	}
}

LICENSE("GPL");

// The packet filter of examples/filter.rs: drops IPv4 packets of blocked sources, and counts.
#include "../packets/headers.h"

struct verdicts {
	__u64 passed;
	__u64 dropped;
};

/* IPv4 source, in network order -> packets that were dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 64);
} blocked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct verdicts);
	__uint(max_entries, 1);
} verdicts SEC(".maps");

#ifdef SECOND_VERSION
/* UDP to this port is dropped too; 0 is no port. */
volatile __u16 closed_port;

static int is_closed(struct iphdr *ip, void *end)
{
	struct udphdr *udp = (void *)(ip + 1);

	return ip->ihl == 5 && ip->protocol == IPPROTO_UDP && (void *)(udp + 1) <= end &&
	       udp->dest == bpf_htons(closed_port);
}
#else
#define is_closed(ip, end) 0
#endif

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	struct ethhdr *eth = DATA(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	__u32 zero = 0, source;
	struct verdicts *counts = bpf_map_lookup_elem(&verdicts, &zero);
	__u64 *hits;

	if (!counts)
		return XDP_ABORTED;
	if ((void *)(ip + 1) > DATA_END(ctx) || eth->h_proto != bpf_htons(ETH_P_IP))
		goto pass;
	source = ip->saddr;
	hits = bpf_map_lookup_elem(&blocked, &source);
	if (hits)
		__sync_fetch_and_add(hits, 1);
	if (hits || is_closed(ip, DATA_END(ctx))) {
		counts->dropped++;
		return XDP_DROP;
	}
pass:
	counts->passed++;
	return XDP_PASS;
}

LICENSE("GPL");

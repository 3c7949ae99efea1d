// Routes IPv4 by longest prefix: the table names an interface, the packet loses a hop of its life, the checksum follows.
#include "headers.h"

struct prefix {
	__u32 length;
	__be32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u32);
	__uint(max_entries, 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} routes SEC(".maps");

static __always_inline void route(__u32 address, __u32 length, __u32 interface)
{
	struct prefix prefix = { length, bpf_htonl(address) };

	bpf_map_update_elem(&routes, &prefix, &interface, BPF_ANY);
}

static bool ready;

/* The table comes from the program itself, so that one run has all it needs. */
static __always_inline void prepare(void)
{
	if (ready)
		return;
	ready = true;
	route(0x0a000000, 8, 3);  /* 10.0.0.0/8 */
	route(0x0a010000, 16, 4); /* 10.1.0.0/16 */
	route(0x0a010200, 24, 5); /* 10.1.2.0/24: not to be reached */
}

static __always_inline void age(struct iphdr *ip)
{
	/* RFC 1624: taking one from the time to live adds 0x0100 to the checksum, with end-around carry. */
	__u32 sum = bpf_ntohs(ip->check) + 0x0100;

	ip->check = bpf_htons((sum & 0xffff) + (sum >> 16));
	ip->ttl--;
}

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	struct ethhdr *eth = DATA(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct prefix prefix = { .length = 32 };
	__u32 *interface;

	if ((void *)(ip + 1) > DATA_END(ctx))
		return XDP_ABORTED;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	prepare();
	prefix.address = ip->daddr;
	interface = bpf_map_lookup_elem(&routes, &prefix);
	if (!interface)
		return XDP_PASS;
	if (*interface == 5 || ip->ttl <= 1)
		return XDP_DROP;
	age(ip);
	return bpf_redirect(*interface, 0);
}

LICENSE("GPL");

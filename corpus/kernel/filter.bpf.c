// An XDP filter with a script beside it: BEGIN fills the block list, the filter obeys it, END prints what it dropped.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, __u64);
	__uint(max_entries, 128);
} blocked SEC(".maps");

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	__be32 source;
	__u64 *dropped;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	source = ip->saddr;
	dropped = bpf_map_lookup_elem(&blocked, &source);
	if (!dropped)
		return XDP_PASS;
	__sync_fetch_and_add(dropped, 1);
	return XDP_DROP;
}

int BEGIN(void)
{
	__be32 address = bpf_htonl(0x0a000001); /* 10.0.0.1 */
	__u64 none = 0;

	return bpf_map_update_elem(&blocked, &address, &none, BPF_ANY);
}

static int show(const void *key, void *value, void *ctx)
{
	const __u8 *byte = key;

	printf("%u.%u.%u.%u: %llu dropped\n", byte[0], byte[1], byte[2], byte[3], *(__u64 *)value);
	return 0;
}

void END(void)
{
	map_for_each(&blocked, show, NULL, MAP_BY_KEY);
}

LICENSE("GPL");

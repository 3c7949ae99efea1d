// Counts packets and bytes that an interface receives, by protocol of their Ethernet header.
//
//     twinbpf run xdp_count.bpf.o --attach count=eth0
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct traffic {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct traffic);
	__uint(max_entries, 256);
} protocols SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct traffic none = {}, *traffic;
	__u32 protocol;

	if (data + sizeof(*eth) > end)
		return XDP_PASS;
	protocol = bpf_ntohs(eth->h_proto);
	traffic = bpf_map_lookup_elem(&protocols, &protocol);
	if (!traffic) {
		bpf_map_update_elem(&protocols, &protocol, &none, BPF_NOEXIST);
		traffic = bpf_map_lookup_elem(&protocols, &protocol);
		if (!traffic)
			return XDP_PASS;
	}
	__sync_fetch_and_add(&traffic->packets, 1);
	__sync_fetch_and_add(&traffic->bytes, end - data);
	return XDP_PASS;
}

static int show(const void *key, void *value, void *ctx)
{
	struct traffic *traffic = value;

	printf("0x%04x %8llu packets %10llu bytes\n", *(__u32 *)key, traffic->packets, traffic->bytes);
	return 0;
}

void END(void)
{
	map_for_each(&protocols, show, NULL, MAP_BY_KEY);
}

LICENSE("GPL");

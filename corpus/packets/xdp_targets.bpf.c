// Redirects through maps with targets in them. Kernel programs may not fill such maps, userspace does; so this asks for
// the host's function, which only our machine has, and is the plain redirect of a kernel program elsewhere.
#include "headers.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 8);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 8);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 8);
} sockets SEC(".maps");

static __always_inline void put(void *map, __u32 key, __u32 value)
{
	if (map_update_elem)
		map_update_elem(map, &key, &value, BPF_ANY);
}

SEC("xdp")
int to_device(struct xdp_md *ctx)
{
	put(&devices, 1, 4);
	return bpf_redirect_map(&devices, 1, XDP_PASS);
}

SEC("xdp")
int to_all_devices(struct xdp_md *ctx)
{
	put(&devices, 1, 4);
	put(&devices, 5, 6);
	return bpf_redirect_map(&devices, 0, BPF_F_BROADCAST);
}

SEC("xdp")
int to_cpu(struct xdp_md *ctx)
{
	put(&cpus, 0, 192);
	return bpf_redirect_map(&cpus, 0, XDP_PASS);
}

SEC("xdp")
int to_socket(struct xdp_md *ctx)
{
	put(&sockets, 0, 3);
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

LICENSE("GPL");

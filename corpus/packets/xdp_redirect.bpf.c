// Redirects through maps: to another interface, to another CPU, to a socket in userspace. Where the map has no entry,
// the low bits of the flags are the result.
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

SEC("xdp")
int to_device(struct xdp_md *ctx)
{
	return bpf_redirect_map(&devices, 1, XDP_DROP);
}

SEC("xdp")
int to_cpu(struct xdp_md *ctx)
{
	return bpf_redirect_map(&cpus, 2, XDP_PASS);
}

SEC("xdp")
int to_socket(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_TX);
}

SEC("xdp")
int bad_flags(struct xdp_md *ctx)
{
	return bpf_redirect_map(&devices, 1, 1 << 20);
}

SEC("xdp")
int to_interface(struct xdp_md *ctx)
{
	return bpf_redirect(7, 0);
}

LICENSE("GPL");

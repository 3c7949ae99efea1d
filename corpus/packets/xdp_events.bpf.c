// Sends the first bytes of each packet to userspace: through a perf event array and through a ring buffer.
#include "headers.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct event {
	__u32 size;
	__u8 first[12];
};

SEC("xdp")
int to_perf(struct xdp_md *ctx)
{
	struct event event = { .size = DATA_END(ctx) - DATA(ctx) };

	if (bpf_xdp_load_bytes(ctx, 0, event.first, sizeof(event.first)))
		return XDP_DROP;
	return bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &event, sizeof(event)) ? XDP_ABORTED : XDP_PASS;
}

SEC("xdp")
int to_ring(struct xdp_md *ctx)
{
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event)
		return XDP_ABORTED;
	event->size = DATA_END(ctx) - DATA(ctx);
	if (bpf_xdp_load_bytes(ctx, 0, event->first, sizeof(event->first))) {
		bpf_ringbuf_discard(event, 0);
		return XDP_DROP;
	}
	bpf_ringbuf_submit(event, 0);
	return XDP_PASS;
}

LICENSE("GPL");

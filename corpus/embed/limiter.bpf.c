// What examples/unit_tests.rs tests: lets a burst of packets through, then one for each millisecond, and samples a few.
#include "../packets/headers.h"

#define BURST 3
#define INTERVAL 1000000 /* nanoseconds */

/* Packets that may still pass now, and when one was added last. */
struct bucket {
	__u64 tokens;
	__u64 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bucket);
	__uint(max_entries, 1);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} samples SEC(".maps");

SEC("xdp")
int limiter(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0, size = ctx->data_end - ctx->data;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &zero);
	__u64 added;

	if (!bucket)
		return XDP_ABORTED;
	added = (now - bucket->last) / INTERVAL;
	bucket->last += added * INTERVAL;
	bucket->tokens += added;
	if (bucket->tokens > BURST)
		bucket->tokens = BURST;
	if (bucket->tokens == 0)
		return XDP_DROP;
	bucket->tokens--;
	if (bpf_get_prandom_u32() % 100 == 0)
		bpf_ringbuf_output(&samples, &size, sizeof(size), 0);
	return XDP_PASS;
}

LICENSE("GPL");

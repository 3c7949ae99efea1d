// Loses on every channel, and counts that by itself: setpgid(magic, COUNT) sends COUNT records and elements.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

const volatile __u32 magic = 0x54574246;

struct enter {
	__u64 common;
	long nr;
	unsigned long args[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12);
} small SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, __u64);
	__uint(max_entries, 100);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u64);
	__uint(max_entries, 10);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, 4);
	__uint(value_size, 8 * 16);
	__uint(max_entries, 1);
} stacks SEC(".maps");

/* Of each channel: what programs sent, what of that was lost, and what came. */
struct sums {
	__u64 sent, lost, came;
};
struct sums of_ring, of_small, of_perf, of_table, of_queue, of_stacks;

static __always_inline void count(struct sums *sums, bool lost)
{
	__sync_fetch_and_add(&sums->sent, 1);
	if (lost)
		__sync_fetch_and_add(&sums->lost, 1);
}

static long send(__u32 index, struct enter **ctx)
{
	__u64 n = index;
	__u64 *record;

	count(&of_ring, bpf_ringbuf_output(&ring, &n, sizeof(n), 0) < 0);
	record = bpf_ringbuf_reserve(&small, sizeof(*record), 0);
	count(&of_small, !record);
	if (record) {
		*record = n;
		bpf_ringbuf_submit(record, 0);
	}
	count(&of_table, bpf_map_update_elem(&table, &n, &n, BPF_ANY) < 0);
	count(&of_queue, bpf_map_push_elem(&queue, &n, BPF_ANY) < 0);
	return 0;
}

static long send_sample(__u32 index, struct enter **ctx)
{
	__u64 data[32] = {};

	count(&of_perf, bpf_perf_event_output(*ctx, &perf, BPF_F_CURRENT_CPU, data, sizeof(data)) < 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_setpgid")
int burst(struct enter *ctx)
{
	if ((__u32)ctx->args[0] != magic)
		return 0;
	bpf_loop((__u32)ctx->args[1], send, &ctx, 0);
	bpf_loop((__u32)ctx->args[1], send_sample, &ctx, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_getpgid")
int stack(struct enter *ctx)
{
	if ((__u32)ctx->args[0] == magic)
		count(&of_stacks, bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK) < 0);
	return 0;
}

SEC("EVENT/ring")
int on_ring(const __u64 *record, __u64 size)
{
	of_ring.came++;
	return 0;
}

SEC("EVENT/small")
int on_small(const __u64 *record, __u64 size)
{
	of_small.came++;
	return 0;
}

SEC("EVENT/perf")
int on_perf(const __u64 *record, __u64 size)
{
	of_perf.came++;
	return 0;
}

static void tell(const char *name, const struct sums *sums)
{
	printf("%s %llu %llu %llu\n", name, sums->sent, sums->lost, sums->came);
}

void END(void)
{
	tell("ring", &of_ring);
	tell("small", &of_small);
	tell("perf", &of_perf);
	tell("table", &of_table);
	tell("queue", &of_queue);
	tell("stacks", &of_stacks);
}

LICENSE("GPL");

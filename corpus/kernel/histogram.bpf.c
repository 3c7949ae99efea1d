// build: -D__TARGET_ARCH_x86
// A kprobe that collects a histogram of read sizes by powers of two, and END that draws it. BEGIN puts some numbers in
// by the function the kernel program uses.
#include <linux/ptrace.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 32);
} slots SEC(".maps");

static __always_inline void record(__u64 size)
{
	__u64 *count;
	__u32 slot = 0;

	while (size > 1 && slot < 31) {
		size >>= 1;
		slot++;
	}
	count = bpf_map_lookup_elem(&slots, &slot);
	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("kprobe/vfs_read")
int read_size(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	record(ctx->rdx);
#else
	record(0);
#endif
	return 0;
}

int BEGIN(void)
{
	__u64 size;

	for (size = 1; size < 40; size += 3)
		record(size);
	return 0;
}

void END(void)
{
	char bar[64];
	__u32 slot;

	for (slot = 0; slot < 8; slot++) {
		__u64 *count = bpf_map_lookup_elem(&slots, &slot);

		if (!count || *count == 0)
			continue;
		__u32 length = *count < 63 ? *count : 63;

		memset(bar, '#', length);
		bar[length] = 0;
		printf("%8u |%-10s| %llu\n", 1U << slot, bar, *count);
	}
}

LICENSE("GPL");

// One program for functions whose argument is in different registers: whoever loads it puts instructions in front that
// bring the argument and a number of the place, for each place others. Alone it is refused, as it reads what nobody set.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct total {
	__u64 count;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct total);
	__uint(max_entries, 8);
} totals SEC(".maps");

SEC("?uprobe")
int add(void *ctx, __u64 value, __u32 place)
{
	struct total *total = bpf_map_lookup_elem(&totals, &place);

	if (!total)
		return 0;
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->sum, value);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

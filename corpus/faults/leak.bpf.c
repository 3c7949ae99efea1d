// A trap while a ring buffer record is reserved and a spin lock is held: both are given back, END goes on using them.
#include <twinbpf/script.h>

struct value {
	struct bpf_spin_lock lock;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct value);
	__uint(max_entries, 1);
} map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

volatile __u64 address = 0x10;

int BEGIN(void)
{
	__u32 zero = 0;
	struct value *value = bpf_map_lookup_elem(&map, &zero);
	__u64 *record = bpf_ringbuf_reserve(&ring, 8, 0);

	if (!value || !record)
		return -1;
	bpf_spin_lock(&value->lock);
	value->count = *(volatile __u32 *)address;
	bpf_spin_unlock(&value->lock);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

LICENSE("GPL");

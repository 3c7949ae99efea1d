// A spin lock taken twice.
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

int BEGIN(void)
{
	__u32 zero = 0;
	struct value *value = bpf_map_lookup_elem(&map, &zero);

	if (!value)
		return -1;
	bpf_spin_lock(&value->lock);
	bpf_spin_lock(&value->lock);
	bpf_spin_unlock(&value->lock);
	return 0;
}

LICENSE("GPL");

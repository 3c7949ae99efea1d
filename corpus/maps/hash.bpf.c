// Hash: keys of any size, flags of updates, the limit on entries.
#include <twinbpf/script.h>

struct flow {
	__u32 from, to;
	__u16 port;
	__u8 protocol, padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow);
	__type(value, __u64);
	__uint(max_entries, 4);
} flows SEC(".maps");

static long put(__u16 port, __u64 value, __u64 flags)
{
	struct flow flow = { .from = 0x0a000001, .to = 0x0a000002, .port = port, .protocol = 6 };

	return bpf_map_update_elem(&flows, &flow, &value, flags);
}

static long get(__u16 port)
{
	struct flow flow = { .from = 0x0a000001, .to = 0x0a000002, .port = port, .protocol = 6 };
	__u64 *value = bpf_map_lookup_elem(&flows, &flow);

	return value ? (long)*value : -1;
}

static long drop(__u16 port)
{
	struct flow flow = { .from = 0x0a000001, .to = 0x0a000002, .port = port, .protocol = 6 };

	return bpf_map_delete_elem(&flows, &flow);
}

int BEGIN(void)
{
	printf("%ld %ld\n", put(1, 10, BPF_EXIST), put(1, 10, BPF_NOEXIST)); /* -ENOENT */
	printf("%ld %ld\n", put(1, 11, BPF_NOEXIST), put(1, 12, BPF_EXIST)); /* -EEXIST */
	printf("%ld %ld\n", get(1), get(2));
	printf("%ld %ld %ld %ld\n", put(2, 20, 0), put(3, 30, 0), put(4, 40, 0), put(5, 50, 0)); /* -E2BIG */
	printf("%ld %ld %ld\n", drop(2), drop(2), get(2)); /* -ENOENT */
	printf("%ld %ld\n", put(5, 50, 0), get(5));
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// What kernel programs of today do, next to a script: callbacks, bpf_loop, ring buffer, spin lock, queue, LPM trie, maps
// of maps, tail calls, custom data sections. Stock libbpf loads all of it; BEGIN uses the same maps.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct guarded {
	struct bpf_spin_lock lock;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct guarded);
	__uint(max_entries, 1);
} guarded SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u64);
	__uint(max_entries, 8);
} queue SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 8);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 2);
	__array(values, struct inner);
} tables SEC(".maps") = {
	.values = { [1] = &table },
};

int leaf(struct __sk_buff *skb);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} next SEC(".maps") = {
	.values = { [1] = (void *)&leaf },
};

__u64 leaves SEC(".data.leaves");
const volatile __u32 rounds = 5;

static long step(__u64 index, void *ctx)
{
	*(__u64 *)ctx += index;
	return 0;
}

static long add_up(void *map, const void *key, void *value, void *ctx)
{
	*(__u64 *)ctx += *(__u64 *)value;
	return 0;
}

static __always_inline void bump(void)
{
	__u32 zero = 0;
	struct guarded *value = bpf_map_lookup_elem(&guarded, &zero);

	if (!value)
		return;
	bpf_spin_lock(&value->lock);
	value->count++;
	bpf_spin_unlock(&value->lock);
}

SEC("tc")
int leaf(struct __sk_buff *skb)
{
	leaves++;
	return TC_ACT_OK;
}

SEC("tc")
int root(struct __sk_buff *skb)
{
	__u32 one = 1, key = 3;
	__u64 sum = 0, *sent, total = 0;
	void *inner;

	bump();
	bpf_loop(rounds, step, &sum, 0);
	bpf_map_push_elem(&queue, &sum, BPF_EXIST);
	inner = bpf_map_lookup_elem(&tables, &one);
	if (inner)
		bpf_map_update_elem(inner, &key, &sum, BPF_ANY);
	bpf_for_each_map_elem(&table, add_up, &total, 0);
	sent = bpf_ringbuf_reserve(&ring, sizeof(*sent), 0);
	if (sent) {
		*sent = total;
		bpf_ringbuf_submit(sent, 0);
	}
	if (total != 10)
		return TC_ACT_SHOT;
	bpf_tail_call(skb, &next, one);
	return TC_ACT_STOLEN;
}

int BEGIN(void)
{
	__u64 sum = 0;

	bump();
	bpf_loop(rounds, step, &sum, 0);
	printf("BEGIN %llu\n", sum);
	return 0;
}

void END(void)
{
	__u32 zero = 0;
	struct guarded *value = bpf_map_lookup_elem(&guarded, &zero);

	printf("END %u %llu\n", value ? value->count : 0, leaves);
}

LICENSE("GPL");

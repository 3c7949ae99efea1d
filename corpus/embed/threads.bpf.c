// What several threads do at the same time: a global, a hash map, a spin lock and a ring buffer, all shared.
#include <twinbpf/script.h>

struct event {
	__u32 thread;
	__u32 turn;
	__u64 check;
};

struct pair {
	struct bpf_spin_lock lock;
	__u32 padding;
	__u64 turns;
	__u64 sent;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct pair);
	__uint(max_entries, 1);
} locked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

__u64 total;

static int send(__u32 thread, __u32 turn)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return 0;
	event->thread = thread;
	event->turn = turn;
	event->check = (__u64)thread << 32 ^ ~(__u64)turn;
	if (turn & 1) {
		bpf_ringbuf_discard(event, 0);
		return 0;
	}
	bpf_ringbuf_submit(event, 0);
	return 1;
}

int work(__u32 thread, __u32 first, __u32 last)
{
	__u32 zero = 0;

	for (__u32 turn = first; turn != last; turn++) {
		__u32 key = turn & 15;
		__u64 none = 0, *count;
		struct pair *pair = bpf_map_lookup_elem(&locked, &zero);

		__sync_fetch_and_add(&total, 1);
		bpf_map_update_elem(&counts, &key, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&counts, &key);
		if (!count || !pair)
			return -1;
		__sync_fetch_and_add(count, 1);
		int sent = send(thread, turn);
		bpf_spin_lock(&pair->lock);
		pair->turns += 1;
		pair->sent += sent;
		bpf_spin_unlock(&pair->lock);
	}
	return 0;
}

LICENSE("GPL");

// Maps of many kinds, for commands that look into maps: they are the kernel's with `run --mode kernel`.
#include <twinbpf/script.h>

enum level { QUIET, LOUD = 7 };

struct who {
	__u32 pid;
	char comm[12];
};

struct what {
	__u64 hits;
	enum level level;
	unsigned char mac[6];
	__u16 port : 12, odd : 1;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct who);
	__type(value, struct what);
	__uint(max_entries, 8);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(key_size, 4);
	__uint(value_size, 3);
	__uint(max_entries, 8);
} untyped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, int);
	__uint(max_entries, 8);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

int limit = 5;
char title[16] = "the shelf";
const volatile enum level level = LOUD;

int BEGIN(void)
{
	struct who who = { 1, "init" };
	struct what what = { 3, LOUD, { 0xde, 0xad }, 80, 1 };
	__u32 key = 1;
	__u64 count = 4;
	int next = -2;

	bpf_map_update_elem(&table, &who, &what, BPF_ANY);
	bpf_map_update_elem(&percpu, &key, &count, BPF_ANY);
	bpf_map_update_elem(&untyped, &key, "ab", BPF_ANY);
	bpf_map_push_elem(&waiting, &next, BPF_ANY);
	return level == LOUD && limit && title[0] ? 0 : -1;
}

void END(void)
{
	struct who who = { 1, "init" };
	struct what *what = bpf_map_lookup_elem(&table, &who);

	if (what)
		printf("%llu hits, limit %d\n", what->hits, limit);
}

LICENSE("GPL");

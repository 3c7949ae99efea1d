// Maps that print by their declarations; there is no END.
#include <twinbpf/script.h>

struct who {
	__u32 pid;
	char comm[16];
};
struct traffic {
	__u64 count;
	__u64 bytes;
};
#define MAP(name, map_type, key_type, value_type, entries)                                         \
	struct {                                                                                   \
		__uint(type, map_type);                                                            \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
		__uint(max_entries, entries);                                                      \
	} name SEC(".maps")

MAP(reads, BPF_MAP_TYPE_HASH, struct who, struct traffic, 8)
DISPLAY("title='Reads, by process', sort=value.bytes, top=2, unit.bytes=bytes, type=counter");
MAP(by_key, BPF_MAP_TYPE_HASH, struct who, __u64, 8);
MAP(senders, BPF_MAP_TYPE_HASH, __u32, __s64, 8)
DISPLAY("title=Senders, key=ipv4, value=errno, sort=key asc, metric=senders_last_error, help='Last, by sender'");
MAP(waits, BPF_MAP_TYPE_ARRAY, __u32, __u64, HIST_SLOTS) DISPLAY("hist, title=Time asleep, unit=us");
MAP(total, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1) DISPLAY("unit=ns, title=CPU time");
MAP(steps, BPF_MAP_TYPE_HASH, struct { char name[8]; __u32 slot; }, __u64, 8)
DISPLAY("lhist=0:30:10, top=1, columns=name");
MAP(never, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("title=Never");
MAP(secret, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("hidden");
MAP(served, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("hidden, metric=served_total, type=counter, columns=cpu");
DISPLAY_MAP(by_key, "columns=pid name calls, sort=key.name asc, value=hex\n# a comment");
/* This one prints with --print-maps only. */
MAP(plain, BPF_MAP_TYPE_HASH, __u32, __u64, 8);

/* Not inlined: to libbpf a function that is alone in .text is a program without a type. */
static __attribute__((noinline)) void add(__u32 pid, const char *comm, __u64 count, __u64 bytes)
{
	struct who who = { .pid = pid };
	struct traffic traffic = { count, bytes };

	strncpy(who.comm, comm, sizeof(who.comm) - 1);
	bpf_map_update_elem(&reads, &who, &traffic, BPF_ANY);
	bpf_map_update_elem(&by_key, &who, &count, BPF_ANY);
}

static void put(void *map, __u32 key, __u64 value) { bpf_map_update_elem(map, &key, &value, BPF_ANY); }

int BEGIN(void)
{
	struct {
		char name[8];
		__u32 slot;
	} step = { "short", 1 };
	__u64 count = 5;

	add(12, "cat", 3, 4096);
	add(7, "s\"h\\", 900, 17); /* escaped in JSON and in metrics */
	add(1234, "make", 20, 3 << 20);
	put(&senders, 0x0100007f, -13);
	put(&senders, 0x08080808, 2);
	put(&waits, hist_slot(5), 4);
	put(&waits, hist_slot(40), 2);
	put(&total, 0, 1500000);
	bpf_map_update_elem(&steps, &step, &count, BPF_ANY);
	step.slot = lhist_slot(29, 0, 30, 10);
	bpf_map_update_elem(&steps, &step, &count, BPF_ANY);
	strcpy(step.name, "long");
	bpf_map_update_elem(&steps, &step, &count, BPF_ANY);
	put(&secret, 1, 1);
	put(&served, 1, 7);
	put(&plain, 1, 1);
	return 0;
}

// Histograms and tables as bpftrace prints them. The expected output is bpftrace 0.17's for the same numbers:
//
//     BEGIN { @sizes = hist(-3); ... @latency["disk"] = hist(300); ... print(@sizes); print(@latency); ... exit(); }
//
// but for the lines that hold a single number, which say how many histograms were printed.
#include <twinbpf/script.h>

/* One histogram, of counters by slot, each CPU its own. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, HIST_SLOTS);
} sizes SEC(".maps");

/* A histogram for each name. */
struct slot_of {
	char name[8];
	__u32 slot;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct slot_of);
	__type(value, __u64);
	__uint(max_entries, 256);
} latency SEC(".maps");

/* The same with all counters of a name in one value. */
struct label {
	char name[8];
	__u32 number;
};
struct counters {
	__u32 slots[HIST_SLOTS];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct label);
	__type(value, struct counters);
	__uint(max_entries, 8);
} depth SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 12);
} steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, LHIST_SLOTS(0, 8192, 1024));
} units SEC(".maps");

/* Nothing was counted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, HIST_SLOTS);
} empty SEC(".maps");

static void add(void *map, const void *key)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(map, key);

	if (count)
		*count += 1;
	else
		bpf_map_update_elem(map, key, &one, BPF_ANY);
}

static void size(__s64 value)
{
	__u32 slot = hist_slot(value);

	add(&sizes, &slot);
}

static void latency_of(const char *name, __s64 value)
{
	struct slot_of key = { .slot = hist_slot(value) };

	strncpy(key.name, name, sizeof(key.name));
	add(&latency, &key);
}

static void depth_of(const char *name, __u32 number, __s64 value)
{
	struct label key = { .number = number };
	static struct counters zero;
	struct counters *counters;

	strncpy(key.name, name, sizeof(key.name));
	bpf_map_update_elem(&depth, &key, &zero, BPF_NOEXIST);
	counters = bpf_map_lookup_elem(&depth, &key);
	if (counters)
		counters->slots[hist_slot(value) % HIST_SLOTS]++;
}

static void step(__s64 value)
{
	__u32 slot = lhist_slot(value, 0, 10000, 1000);

	add(&steps, &slot);
}

static void unit(__s64 value)
{
	__u32 slot = lhist_slot(value, 0, 8192, 1024);

	add(&units, &slot);
}

int BEGIN(void)
{
	__s64 value;

	size(-3);
	size(0);
	size(1);
	size(5);
	size(1025);
	size(1);
	size(5000000);
	latency_of("disk", 3);
	latency_of("disk", 300);
	latency_of("disk", 301);
	latency_of("ram", 0);
	depth_of("deep", 2, 6);
	depth_of("deep", 2, 7);
	depth_of("deep", 2, 17);
	depth_of("flat", 1, 1);
	for (value = -400; value < 12000; value += 700)
		step(value);
	unit(2000);
	unit(5000);
	return 0;
}

void END(void)
{
	printf("%d\n", print_hist(&sizes));
	printf("%d\n", print_hist(&latency));
	printf("%d\n", print_hist(&depth));
	printf("%d\n", print_lhist(&steps, 0, 10000, 1000));
	printf("%d\n", print_lhist(&units, 0, 8192, 1024));
	printf("%d\n", print_hist(&empty));
	printf("%d\n", print_lhist(&steps, 10, 10, 1));
}

LICENSE("GPL");

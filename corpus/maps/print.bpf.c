// Tables as bpftrace prints them: by value, keys of several parts as lists, structs and arrays by their types. The expected
// lines are those bpftrace 0.17 prints for the same maps (print(@counts), @last, @negative, @pairs); it has no structs as
// values of tables, so the line of @shapes is written by hand in the notation of its print((struct point)...).
#include <twinbpf/script.h>

struct name {
	char text[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct name);
	__type(value, __u64);
	__uint(max_entries, 16);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __s64);
	__uint(max_entries, 1);
} last SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __s32);
	__type(value, __s16);
	__uint(max_entries, 16);
} negative SEC(".maps");

struct pair {
	char comm[8];
	__u32 pid;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, struct pair);
	__type(value, __u64);
	__uint(max_entries, 16);
} pairs SEC(".maps");

struct point {
	__s32 x, y;
};
struct shape {
	char name[8];
	struct point at;
	__u16 sides[3];
	struct point corners[2];
	unsigned char colour[3];
	bool filled;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct shape);
	__uint(max_entries, 4);
} shapes SEC(".maps");

static void count(const char *text, __u64 value)
{
	struct name key = {};

	strncpy(key.text, text, sizeof(key.text));
	bpf_map_update_elem(&counts, &key, &value, BPF_ANY);
}

static void negate(__s32 key, __s16 value)
{
	bpf_map_update_elem(&negative, &key, &value, BPF_ANY);
}

static void pair(const char *comm, __u32 pid, __u64 value)
{
	struct pair key = { .pid = pid };

	strncpy(key.comm, comm, sizeof(key.comm));
	bpf_map_update_elem(&pairs, &key, &value, BPF_ANY);
}

static int add(const void *key, void *value, void *total)
{
	*(__u64 *)total += *(__u64 *)value;
	return 0;
}

int BEGIN(void)
{
	struct shape square = {
		.name = "square",
		.at = { -1, 2 },
		.sides = { 4, 5, 6 },
		.corners = { { 0, 1 }, { 2, -3 } },
		.colour = { 255, 0, 7 },
		.filled = true,
	};
	__u32 zero = 0, two = 2;
	__s64 seven = -7;
	__u64 total = 0;
	int counted;

	count("sh", 12);
	count("bash", 1);
	count("say \"hi\"", 7);
	bpf_map_update_elem(&last, &zero, &seven, BPF_ANY);
	negate(-1, 10);
	negate(3, -5);
	negate(2, -6);
	pair("sh", 12, 3);
	pair("bash", 2, 1);
	bpf_map_update_elem(&shapes, &two, &square, BPF_ANY);
	counted = print_map(&counts);
	counted += print_map(&last);
	counted += print_map(&negative);
	counted += print_map(&pairs);
	counted += print_map(&shapes);
	map_for_each(&pairs, add, &total, MAP_BY_KEY | MAP_SUMMED);
	printf("%d entries, %llu in pairs\n", counted, total);
	return 0;
}

void END(void)
{
	char text[32], none[3] = "--";

	printf("%d\n", strftime(text, sizeof(text), "100%% %%f %Y", bpf_ktime_get_boot_ns()) == sizeof("100% %f 2000") - 1);
	printf("%zu ", strftime(none, sizeof(none), "%Y-%m-%d", 0));
	printf("%zu\n", strlen(none));
}

LICENSE("GPL");

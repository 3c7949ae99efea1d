// Maps, globals and arguments of many types, for hosts that give them types of their own.
#include <twinbpf/script.h>

enum state { OPEN, CLOSED };

struct flow {
	__u32 source; /* both in network order, as the port */
	__u32 target;
	__u16 port;
	__u8 protocol; /* and a byte of padding */
};

struct counters {
	__s64 balance;
	__u32 hits[3];
	enum state state;
	char name[6];
	__u16 small;
	union {
		__u64 whole;
		__u8 bytes[8];
	};
};

struct point {
	int x, y;
};

HOST struct point *mirror(const struct point *point);
HOST void swap(struct point *point);
HOST __u64 sum(const __u32 *numbers, __u64 count);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow);
	__type(value, struct counters);
	__uint(max_entries, 4);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, __u32);
	__type(value, __s32);
	__uint(max_entries, 4);
} by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 8);
	__uint(max_entries, 2);
} untyped SEC(".maps");

struct counters last;
const volatile __u32 limit = 10;
static volatile __s16 hidden = -3;
volatile __u8 flag;
double ratio = 0.5;
struct point triangle[3];

int touch(const struct flow *flow)
{
	struct counters first = { .balance = -1, .name = "abcde" };
	struct counters *found = bpf_map_lookup_elem(&flows, flow);

	if (!found) {
		bpf_map_update_elem(&flows, flow, &first, BPF_ANY);
		return hidden;
	}
	found->balance += limit;
	found->hits[1]++;
	found->state = CLOSED;
	last = *found;
	flag = 200;
	return hidden;
}

int count(__s32 by)
{
	__u32 key = 7;
	__s32 zero = 0, *found;

	bpf_map_update_elem(&by_cpu, &key, &zero, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&by_cpu, &key);
	return found ? *found += by : 0;
}

/* The sum of what mirror made of a point, after swap. */
int mirrored(struct point *point)
{
	struct point *copy = mirror(point);

	swap(copy);
	swap(point);
	triangle[2] = *copy;
	return copy->x * 1000 + copy->y;
}

__u64 summed(const __u32 *numbers, __u64 count)
{
	return sum(numbers, count);
}

/* Pointers that are none: into read-only data, and past the end. */
int refused(int which)
{
	static const struct point origin = { 3, 4 };

	if (which)
		return sum((const __u32 *)&triangle[2], 3);
	swap((struct point *)&origin);
	return 0;
}

LICENSE("GPL");

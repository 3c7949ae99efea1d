// Declarations of maps that cannot be obeyed.
#include <twinbpf/script.h>

#define MAP(name, map_type, key_type, value_type, entries)                                         \
	struct {                                                                                   \
		__uint(type, map_type);                                                            \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
		__uint(max_entries, entries);                                                      \
	} name SEC(".maps")

MAP(a, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("title=A, tpo=5");
MAP(b, BPF_MAP_TYPE_HASH, char[8], __u64, 8) DISPLAY("key=syscall");
MAP(c, BPF_MAP_TYPE_HASH, __u32, char[8], 8) DISPLAY("title='c', unit.value=bytes");
MAP(d, BPF_MAP_TYPE_HASH, __u32, struct { __u64 count; }, 8) DISPLAY("sort=value.total asc");
MAP(e, BPF_MAP_TYPE_HASH, char[8], __u64, 8) DISPLAY("hist");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} f SEC(".maps") DISPLAY("top=3");
MAP(g, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("rate");
MAP(h, BPF_MAP_TYPE_HASH, __u32, struct { __u64 min_count; __s64 min_value; }, 8) DISPLAY("every=1s, clear");
MAP(i, BPF_MAP_TYPE_LRU_HASH, __u32, __u64, 8) DISPLAY("every=1s, clear");
MAP(j, BPF_MAP_TYPE_HASH, __u32, char[16], 8) DISPLAY("every=1s, clear");
MAP(k, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("hist, unit.x=us");
MAP(l, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("value=hex, unit=flags");
MAP(m, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1) DISPLAY("top=3, title=m");
MAP(n, BPF_MAP_TYPE_HASH, __u32, __u64, 8) DISPLAY("hist, rate");
DISPLAY_MAP(a, "top=1");
DISPLAY_MAP(count, "top=1");
DISPLAY_MAP(g, "title='never ends");
static const char no_map[] SEC("config") __attribute__((used)) = "top=1";
int x DISPLAY("top=1");

int BEGIN(void) { return x; }

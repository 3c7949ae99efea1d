// LRU hash maps: an update of a full map succeeds and something old goes. Which one is the map's affair, so this only
// counts; a map with room keeps everything.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1024);
} recent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1024);
} percpu SEC(".maps");

static __noinline __u32 fill(void *map, __u32 from, __u32 to)
{
	__u32 failed = 0, key;

	for (key = from; key < to; key++) {
		__u32 value = key * 2;

		failed += bpf_map_update_elem(map, &key, &value, BPF_ANY) != 0;
	}
	return failed;
}

static __noinline __u32 present(void *map, __u32 from, __u32 to)
{
	__u32 found = 0, key;

	for (key = from; key < to; key++) {
		__u32 *value = bpf_map_lookup_elem(map, &key);

		found += value && *value == key * 2;
	}
	return found;
}

static __noinline void exercise(void *map)
{
	__u32 found;

	printf("%u failed", fill(map, 0, 64));
	printf(", %u of 64 there\n", present(map, 0, 64));
	printf("%u failed", fill(map, 64, 5000));
	found = present(map, 0, 5000);
	printf(", within capacity %d, not empty %d, newest there %u\n", found <= 1024, found > 0,
	       present(map, 4999, 5000));
}

int BEGIN(void)
{
	exercise(&recent);
	exercise(&percpu);
	return 0;
}

LICENSE("GPL");

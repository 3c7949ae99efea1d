// Longest-prefix match: a routing table for IPv4, asked for the most specific route.
#include <twinbpf/script.h>

struct prefix {
	__u32 length;
	__u8 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u32);
	__uint(max_entries, 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} routes SEC(".maps");

static void route(__u8 a, __u8 b, __u8 c, __u8 d, __u32 length, __u32 hop)
{
	struct prefix prefix = { length, { a, b, c, d } };
	long error = bpf_map_update_elem(&routes, &prefix, &hop, BPF_ANY);

	if (error)
		printf("route %u.%u.%u.%u/%u: %ld\n", a, b, c, d, length, error);
}

static void ask(__u8 a, __u8 b, __u8 c, __u8 d)
{
	struct prefix prefix = { 32, { a, b, c, d } };
	__u32 *hop = bpf_map_lookup_elem(&routes, &prefix);

	printf("%u.%u.%u.%u by %d\n", a, b, c, d, hop ? (int)*hop : -1);
}

static int show(const void *key, void *value, void *ctx)
{
	const struct prefix *prefix = key;

	printf("%u.%u.%u.%u/%u by %u\n", prefix->address[0], prefix->address[1], prefix->address[2],
	       prefix->address[3], prefix->length, *(__u32 *)value);
	return 0;
}

int BEGIN(void)
{
	struct prefix gone = { 24, { 10, 1, 2, 0 } };

	ask(10, 1, 2, 3);
	route(10, 0, 0, 0, 8, 1);
	route(10, 1, 0, 0, 16, 2);
	route(10, 1, 2, 0, 24, 3);
	route(10, 1, 2, 128, 25, 4);
	route(192, 168, 0, 1, 32, 5);
	route(10, 0, 0, 0, 33, 6); /* too long: -EINVAL */
	ask(10, 200, 0, 1);
	ask(10, 1, 77, 1);
	ask(10, 1, 2, 127);
	ask(10, 1, 2, 128);
	ask(192, 168, 0, 1);
	ask(192, 168, 0, 2);
	printf("%ld", bpf_map_delete_elem(&routes, &gone));
	printf(" %ld\n", bpf_map_delete_elem(&routes, &gone)); /* -ENOENT */
	ask(10, 1, 2, 127);
	route(0, 0, 0, 0, 0, 9); /* the default route */
	ask(8, 8, 8, 8);
	return 0;
}

void END(void)
{
	printf("%ld routes\n", map_for_each(&routes, show, NULL, MAP_BY_VALUE));
}

LICENSE("GPL");

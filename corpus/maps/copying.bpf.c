// The copying calls on maps beyond hash and array: a queue by pushing updates, an LPM trie walked from key to key.
#include <twinbpf/script.h>

struct prefix {
	__u32 length;
	__u8 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u8);
	__uint(max_entries, 8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u32);
	__uint(max_entries, 4);
} queue SEC(".maps");

int BEGIN(void)
{
	struct prefix a = { 8, { 10, 0, 0, 0 } }, b = { 16, { 10, 9, 0, 0 } }, next, probe = { 32, { 10, 9, 8, 7 } };
	__u8 hop = 1;
	__u32 value = 5, keys = 0, bits = 0;
	void *from = NULL;

	printf("%d", map_update_elem(&routes, &a, &hop, BPF_ANY));
	hop = 2;
	printf(" %d", map_update_elem(&routes, &b, &hop, BPF_ANY));
	printf(" %d", map_lookup_elem(&routes, &probe, &hop));
	printf(" %u\n", hop);
	while (map_get_next_key(&routes, from, &next) == 0 && keys < 10) {
		keys++;
		bits += next.length;
		a = next;
		from = &a;
	}
	printf("%u keys, %u bits\n", keys, bits);
	printf("%d", map_update_elem(&queue, NULL, &value, BPF_ANY));
	value = 0;
	printf(" %ld", bpf_map_peek_elem(&queue, &value));
	printf(" %u\n", value);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

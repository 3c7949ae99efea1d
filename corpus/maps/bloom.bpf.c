// Bloom filter: remembers what was put in, and says "perhaps" or "no" (-ENOENT) when asked.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__type(value, __u64);
	__uint(max_entries, 1000);
	__uint(map_extra, 5); /* hash functions */
} seen SEC(".maps");

int BEGIN(void)
{
	__u32 there = 0, mistaken = 0;
	__u64 i, value;

	for (i = 0; i < 100; i++) {
		value = i * i;
		bpf_map_push_elem(&seen, &value, BPF_ANY);
	}
	for (i = 0; i < 100; i++) {
		value = i * i;
		there += bpf_map_peek_elem(&seen, &value) == 0;
	}
	for (i = 100000; i < 101000; i++)
		mistaken += bpf_map_peek_elem(&seen, &i) == 0;
	/* A filter this empty is almost never mistaken; a twentieth is far beyond chance. */
	printf("%u there, seldom mistaken %d\n", there, mistaken < 50);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// The smallest whole script: BEGIN fills a map, END reads it back, both print.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} squares SEC(".maps");

int BEGIN(void)
{
	__u32 n;

	printf("BEGIN: filling the map\n");
	for (n = 1; n <= 5; n++) {
		__u64 square = n * n;

		bpf_map_update_elem(&squares, &n, &square, BPF_ANY);
	}
	return 0;
}

void END(void)
{
	__u64 sum = 0;
	__u32 n;

	for (n = 1; n <= 5; n++) {
		__u64 *square = bpf_map_lookup_elem(&squares, &n);

		if (square) {
			printf("END: %u squared is %llu\n", n, *square);
			sum += *square;
		}
	}
	printf("END: the sum is %llu\n", sum);
}

LICENSE("GPL");

// One byte behind a map value.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, char[8]);
	__uint(max_entries, 4);
} map SEC(".maps");

volatile __u32 length = 9;

int BEGIN(void)
{
	__u32 key = 0, i;
	char *value = bpf_map_lookup_elem(&map, &key);

	if (!value)
		return -1;
	for (i = 0; i < length; i++)
		value[i] = 'x';
	return 0;
}

LICENSE("GPL");

// Maps as they were defined before BTF: records in a section `maps`. libbpf 1.0 dropped them, we read them.
#include <twinbpf/script.h>

struct bpf_map_def {
	unsigned int type;
	unsigned int key_size;
	unsigned int value_size;
	unsigned int max_entries;
	unsigned int map_flags;
};

struct bpf_map_def SEC("maps") first = {
	.type = BPF_MAP_TYPE_HASH,
	.key_size = 4,
	.value_size = 8,
	.max_entries = 2,
};

struct bpf_map_def SEC("maps") second = {
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = 4,
	.value_size = 16,
	.max_entries = 3,
};

__u32 _version SEC("version") = 0x060100;

int BEGIN(void)
{
	__u64 value[2] = { 10, 20 }, *cell;
	__u32 key;

	for (key = 7; key < 10; key++)
		printf("%ld ", bpf_map_update_elem(&first, &key, value, BPF_NOEXIST));
	printf("\n");
	for (key = 1; key < 4; key++)
		printf("%ld ", bpf_map_update_elem(&second, &key, value, BPF_ANY));
	printf("\n");
	key = 2;
	cell = bpf_map_lookup_elem(&second, &key);
	if (cell)
		printf("%llu %llu\n", cell[0], cell[1]);
	return 0;
}

LICENSE("GPL");

// map_for_each compares keys and values field by field as BTF describes them: unsigned, signed, text.
#include <twinbpf/script.h>

struct key {
	char name[8];
	__s16 number;
	__u16 padding;
};

struct value {
	__u32 major;
	__s64 minor;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct key);
	__type(value, struct value);
	__uint(max_entries, 16);
} map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __s32);
	__type(value, __u64);
	__uint(max_entries, 16);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u8);
	__uint(max_entries, 3);
} array SEC(".maps");

static void put(const char *name, __s16 number, __u32 major, __s64 minor)
{
	struct key key = { .number = number };
	struct value value = { .major = major, .minor = minor };

	strncpy(key.name, name, sizeof(key.name) - 1);
	bpf_map_update_elem(&map, &key, &value, BPF_ANY);
}

static int show(const void *key, void *value, void *ctx)
{
	const struct key *k = key;
	struct value *v = value;

	printf("  %s %d: %u %lld\n", k->name, k->number, v->major, v->minor);
	return 0;
}

static int show_number(const void *key, void *value, void *ctx)
{
	printf(" %d:%llu", *(const __s32 *)key, *(__u64 *)value);
	return 0;
}

static int show_index(const void *key, void *value, void *ctx)
{
	printf(" %u", *(const __u32 *)key);
	return 0;
}

/* The snapshot stands: deleting while it is walked disturbs nothing. */
static int remove(const void *key, void *value, void *ctx)
{
	return map_delete_elem(ctx, key);
}

int BEGIN(void)
{
	static const __s32 keys[] = { 3, -1, 2000000000, -2000000000, 0 };
	__u32 i;

	put("b", 1, 1, 0);
	put("a", 2, 1, -5);
	put("a", -3, 4000000000, 9);
	put("ab", 0, 0, 7);
	for (i = 0; i < 5; i++) {
		__u64 value = (i * 7) % 5;

		bpf_map_update_elem(&numbers, &keys[i], &value, BPF_ANY);
	}
	return 0;
}

void END(void)
{
	printf("by key\n");
	map_for_each(&map, show, NULL, MAP_BY_KEY);
	printf("by value\n");
	map_for_each(&map, show, NULL, MAP_BY_VALUE);
	printf("numbers:");
	map_for_each(&numbers, show_number, NULL, MAP_BY_KEY);
	printf("\ndescending:");
	map_for_each(&numbers, show_number, NULL, MAP_BY_KEY | MAP_DESCENDING);
	printf("\nby value:");
	map_for_each(&numbers, show_number, NULL, MAP_BY_VALUE);
	printf("\nin map order:");
	map_for_each(&array, show_index, NULL, 0);
	printf("\n%ld removed, ", map_for_each(&numbers, remove, &numbers, 0));
	printf("%ld left\n", map_for_each(&numbers, show_number, NULL, 0));
}

LICENSE("GPL");

#include <twinbpf/perf_script.h>

struct name {
	char comm[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct name);
	__type(value, u64);
	__uint(max_entries, 65536);
} counts SEC(".maps");

int EVENT(struct sample *s, u64 size)
{
	struct name name;
	u64 one = 1, *old;

	memcpy(name.comm, s->comm, sizeof(name.comm));
	old = bpf_map_lookup_elem(&counts, &name);
	if (old)
		++*old;
	else if (bpf_map_update_elem(&counts, &name, &one, BPF_NOEXIST))
		exit(1);
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	printf("%s %llu\n", (const char *)key, *(u64 *)value);
	return 0;
}

void END(void)
{
	map_for_each(&counts, row, NULL, 0);
}

LICENSE("GPL");

#include <twinbpf/perf_script.h>

struct stack {
	char text[1000];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct stack);
	__type(value, u64);
	__uint(max_entries, 65536);
} stacks SEC(".maps");

static struct stack stack;

int EVENT(struct sample *s, u64 size)
{
	u64 one = 1, *old;

	memset(&stack, 0, sizeof(stack));
	sample_stack(stack.text, sizeof(stack.text));
	old = bpf_map_lookup_elem(&stacks, &stack);
	if (old)
		++*old;
	else if (bpf_map_update_elem(&stacks, &stack, &one, BPF_NOEXIST))
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
	map_for_each(&stacks, row, NULL, 0);
}

LICENSE("GPL");

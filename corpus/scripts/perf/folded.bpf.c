/* Samples by stack, as flame graphs take them: `comm;main;work 17`; of a recording with -g. */
#include <twinbpf/perf_script.h>

struct stack {
	char text[1000];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct stack);
	__type(value, u64);
	__uint(max_entries, 10240);
} stacks SEC(".maps");

static struct stack stack;

int EVENT(struct sample *s, u64 size)
{
	u64 none = 0, *count;
	int length;

	memset(&stack, 0, sizeof(stack));
	length = snprintf(stack.text, sizeof(stack.text), "%s;", s->comm);
	sample_stack(stack.text + length, sizeof(stack.text) - length);
	bpf_map_update_elem(&stacks, &stack, &none, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&stacks, &stack);
	if (!count)
		exit(1);
	++*count;
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	print_folded(key, *(u64 *)value);
	return 0;
}

void END(void)
{
	map_for_each(&stacks, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

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
static int last; /* bytes of the text before */

int EVENT(struct sample *s, u64 size)
{
	int length = 0;
	u64 one = 1, *count;

	for (; length < 15 && s->comm[length]; length++)
		stack.text[length] = s->comm[length];
	stack.text[length++] = ';';
	length += sample_stack(stack.text + length, sizeof(stack.text) - length);
	if (length >= (int)sizeof(stack.text)) /* it was cut */
		length = sizeof(stack.text) - 1;
	if (length < last)
		memset(stack.text + length, 0, last - length);
	last = length;
	count = bpf_map_lookup_elem(&stacks, &stack);
	if (count)
		++*count;
	else if (bpf_map_update_elem(&stacks, &stack, &one, BPF_NOEXIST))
		exit(1);
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

// What a script can ask about addresses and other processes, here about its own.
#include <twinbpf/script.h>

struct stack {
	__u64 frames[4];
};

/* In a tracing tool this is a STACK_TRACE map, and the kernel fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct stack);
	__uint(max_entries, 4);
} stacks SEC(".maps");

static const char secret[] = "read from afar";

int BEGIN(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, id = 7;
	struct stack stack = { { 0x10, 0x20, 0, 0x30 } };
	char text[16], small[4];

	printf("%d", ksym(0x10, text, sizeof(text)));
	printf(" %s\n", text);
	printf("%d", usym(pid, 0x123456, small, sizeof(small)));
	printf(" %s\n", small);
	bpf_map_update_elem(&stacks, &id, &stack, BPF_ANY);
	printf("%d\n", print_ustack(&stacks, 7, pid));
	printf("%d\n", print_kstack(&stacks, 7));
	printf("no such stack %d, none taken %d\n", print_ustack(&stacks, 8, pid), print_kstack(&stacks, -14));
	/* A script is not shown the machine that it runs in. */
	printf("our own %ld, ", read_mem(pid, text, sizeof(secret), (__u64)secret));
	printf("init's %ld, nobody's %ld\n", read_mem(1, text, 8, 8), read_mem(0x7fffffff, text, 8, 8));
	return 0;
}

void END(void)
{
}

LICENSE("GPL");

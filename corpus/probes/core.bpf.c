// What of the kernel's types is where, and what there is at all, asked in the kernel and in userspace.
// build: -D__TARGET_ARCH_x86
#include "seen.h"

struct task_struct {
	int tgid;
	struct task_struct *real_parent;
	unsigned int __state;
} __attribute__((preserve_access_index));

struct task_struct___old {
	long state;
} __attribute__((preserve_access_index));

/* Of another order and with other numbers than the kernel's. */
enum bpf_map_type___there {
	BPF_MAP_TYPE_ARENA___there = 1000,
	BPF_MAP_TYPE_RINGBUF___there,
};

struct answers {
	__u32 tgid, size, state, old_state, arena, ringbuf;
};

__u32 process, parent;
struct answers there;

static __always_inline struct answers ask(void)
{
	return (struct answers){
		.tgid = bpf_core_field_offset(struct task_struct, tgid),
		.size = bpf_core_type_size(struct task_struct),
		.state = bpf_core_field_exists(struct task_struct, __state),
		.old_state = bpf_core_field_exists(struct task_struct___old, state),
		.arena = bpf_core_enum_value_exists(enum bpf_map_type___there, BPF_MAP_TYPE_ARENA___there),
		.ringbuf = bpf_core_enum_value(enum bpf_map_type___there, BPF_MAP_TYPE_RINGBUF___there),
	};
}

SEC("tp/syscalls/sys_enter_getppid")
int asked(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (!is_workload())
		return 0;
	process = BPF_CORE_READ(task, tgid);
	parent = BPF_CORE_READ(task, real_parent, tgid);
	there = ask();
	return 0;
}

static void print_answers(const char *where, struct answers *answers)
{
	printf("%s %u %u %u %u ", where, answers->tgid, answers->size, answers->state, answers->old_state);
	printf("%u %u\n", answers->arena, answers->ringbuf);
}

void END(void)
{
	struct answers here = ask();

	printf("tasks %u %u\n", process, parent);
	print_answers("kernel", &there);
	print_answers("userspace", &here);
}

LICENSE("GPL");

// Arguments of global functions that only a tag makes the context: kernels before 6.8 want a type of a certain name.
// build: -D__TARGET_ARCH_x86
#include "seen.h"

#define __arg_ctx __attribute__((btf_decl_tag("arg:ctx")))

#define LSEEK 8

struct seen raw, probe;

__noinline int entered(__u32 number, void *ctx __arg_ctx)
{
	struct bpf_raw_tracepoint_args *args = ctx;

	return args->args[1] == number ? saw(&raw, number) : 0;
}

SEC("raw_tp/sys_enter")
int entering(void *ctx)
{
	return entered(LSEEK, ctx);
}

__noinline int size(struct pt_regs *ctx __arg_ctx)
{
	return saw(&probe, PT_REGS_PARM3_CORE(ctx));
}

SEC("kprobe/vfs_read")
int reading(struct pt_regs *ctx)
{
	return size(ctx);
}

void END(void)
{
	show("raw_tp", &raw);
	show("kprobe", &probe);
}

LICENSE("GPL");

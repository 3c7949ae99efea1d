// A static probe of user space: its arguments, wherever the note in the file says that they are.
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

struct seen {
	__u64 hits;
	__u64 cookie;
	__u64 arguments;
	long values[4];
};

struct seen seen;

SEC("usdt")
int fired(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&seen.hits, 1);
	seen.cookie = bpf_usdt_cookie(ctx);
	seen.arguments = bpf_usdt_arg_cnt(ctx);
	bpf_usdt_arg(ctx, 0, &seen.values[0]);
	bpf_usdt_arg(ctx, 1, &seen.values[1]);
	bpf_usdt_arg(ctx, 2, &seen.values[2]);
	bpf_usdt_arg(ctx, 3, &seen.values[3]);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

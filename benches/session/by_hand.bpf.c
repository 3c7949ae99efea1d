/* The same, read from registers by hand. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

unsigned long total;

SEC("uprobe.multi/./probed:work")
int by_hand(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&total, (int)PT_REGS_PARM1(ctx) + PT_REGS_PARM2(ctx) + PT_REGS_PARM3(ctx));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// A tool that users load into a host: how large its requests are, and how many it refuses.
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

__u64 sizes[16];
__u64 refused;

SEC("uprobe/exe:handle_request")
int request(struct pt_regs *ctx)
{
	__u64 bytes = PT_REGS_PARM2(ctx);
	__u32 slot = 0;

	while (bytes > 1 && slot < 15) {
		bytes >>= 1;
		slot++;
	}
	__sync_fetch_and_add(&sizes[slot], 1);
	return 0;
}

SEC("uretprobe/exe:handle_request")
int reply(struct pt_regs *ctx)
{
	if (PT_REGS_RC(ctx) == 0)
		__sync_fetch_and_add(&refused, 1);
	return 0;
}

char _license[] SEC("license") = "GPL";

// Prints a line each time a process passes a static probe (USDT), with the first two arguments.
//
//     twinbpf run usdt.bpf.o --attach passed=/usr/bin/python3:python:function__entry
// build: -D__TARGET_ARCH_x86
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <stdbool.h>
#include <bpf/usdt.bpf.h>
#include <twinbpf/script.h>

struct record {
	__u32 pid;
	__u32 count;
	long args[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} records SEC(".maps");

SEC("usdt")
int passed(struct pt_regs *ctx)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record)
		return 0;
	record->pid = bpf_get_current_pid_tgid() >> 32;
	record->count = bpf_usdt_arg_cnt(ctx);
	record->args[0] = record->args[1] = 0;
	bpf_usdt_arg(ctx, 0, &record->args[0]);
	bpf_usdt_arg(ctx, 1, &record->args[1]);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

int EVENT(struct record *record, __u64 size)
{
	printf("%u: %u arguments: %ld %ld\n", record->pid, record->count, record->args[0], record->args[1]);
	return 0;
}

LICENSE("GPL");

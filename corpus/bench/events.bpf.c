// Events by the thousand, to be counted: setpgid(MAGIC, COUNT) sends COUNT records. EVENT prints each, END what became
// of them: what was delivered and what was lost are together what was sent.
//
//     twinbpf run events.bpf.o -- WORKLOAD
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

#ifndef RING
#define RING (1 << 18)
#endif
#define MAGIC 0x54574246

struct enter {
	__u64 common;
	long nr;
	unsigned long args[6];
};

struct event {
	__u64 number;
	__u64 time;
	__u32 pid;
	__u32 cpu;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} records SEC(".maps");

struct {
	__u64 sent;
	__u64 lost;
	/* Counted on another CPU than the others: a cache line of its own. */
	__u64 delivered __attribute__((aligned(64)));
} sums;

static long send(__u32 index, void *ctx)
{
	struct event *event;
	__u64 number = __sync_fetch_and_add(&sums.sent, 1);

	event = bpf_ringbuf_reserve(&records, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&sums.lost, 1);
		return 0;
	}
	event->number = number;
	event->time = bpf_ktime_get_ns();
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_setpgid")
int burst(struct enter *ctx)
{
	if ((__u32)ctx->args[0] == MAGIC)
		bpf_loop((__u32)ctx->args[1], send, NULL, 0);
	return 0;
}

int EVENT(const struct event *event, __u64 size)
{
	sums.delivered++;
	printf("%8llu %6u %-16s %3u %llx\n", event->number, event->pid, event->comm, event->cpu, event->time & 0xff);
	return 0;
}

void END(void)
{
	printf("sent %llu lost %llu delivered %llu\n", sums.sent, sums.lost, sums.delivered);
}

LICENSE("GPL");

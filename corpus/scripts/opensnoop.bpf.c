// Prints a line for each file that is opened: process, name, status of the call, path. Records come through a ring
// buffer in the order in which the calls ended.
//
//     twinbpf run opensnoop.bpf.o
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

#define PATH 256

struct enter {
	__u64 common;
	long nr;
	unsigned long args[6];
};

struct leave {
	__u64 common;
	long nr;
	long ret;
};

struct record {
	__u32 pid;
	int ret;
	char comm[16];
	char path[PATH];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 10240);
} paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Records that found no room. */
__u64 lost;

SEC("tracepoint/syscalls/sys_enter_openat")
int opening(struct enter *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 path = ctx->args[1];

	bpf_map_update_elem(&paths, &tid, &path, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_openat")
int opened(struct leave *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id;
	__u64 *path = bpf_map_lookup_elem(&paths, &tid);
	struct record *record;

	if (!path)
		return 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (record) {
		record->pid = id >> 32;
		record->ret = ctx->ret;
		bpf_get_current_comm(record->comm, sizeof(record->comm));
		/* Now the path is in memory: the call itself has read it. */
		bpf_probe_read_user_str(record->path, sizeof(record->path), (void *)*path);
		bpf_ringbuf_submit(record, 0);
	} else {
		__sync_fetch_and_add(&lost, 1);
	}
	bpf_map_delete_elem(&paths, &tid);
	return 0;
}

int BEGIN(void)
{
	printf("%-7s %-16s %4s %s\n", "PID", "COMM", "RET", "PATH");
	return 0;
}

int EVENT(struct record *record, __u64 size)
{
	printf("%-7u %-16s %4d %s\n", record->pid, record->comm, record->ret, record->path);
	return 0;
}

void END(void)
{
	if (lost)
		printf("%llu records lost\n", lost);
}

LICENSE("GPL");

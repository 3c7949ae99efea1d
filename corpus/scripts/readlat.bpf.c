// A histogram of how long read(2) takes, in microseconds, for each process name.
//
//     twinbpf run readlat.bpf.o -- make -j2
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

/* --set comm=NAME counts this one only. */
const volatile char comm[16] = "";

struct slot {
	char name[16];
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 10240);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct slot);
	__type(value, __u64);
	__uint(max_entries, 10240);
} usecs SEC(".maps");

static __always_inline int is_wanted(const char *name)
{
	int i;

	for (i = 0; comm[0] && i < 16; i++) {
		if (name[i] != comm[i])
			return 0;
		if (!name[i])
			break;
	}
	return 1;
}

SEC("tracepoint/syscalls/sys_enter_read")
int reading(void *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&starts, &tid, &now, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_read")
int read_done(void *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *start = bpf_map_lookup_elem(&starts, &tid), one = 1, *count;
	struct slot slot = {};

	if (!start)
		return 0;
	slot.slot = hist_slot((bpf_ktime_get_ns() - *start) / 1000);
	bpf_map_delete_elem(&starts, &tid);
	bpf_get_current_comm(slot.name, sizeof(slot.name));
	if (!is_wanted(slot.name))
		return 0;
	if (bpf_map_update_elem(&usecs, &slot, &one, BPF_NOEXIST) == 0)
		return 0;
	count = bpf_map_lookup_elem(&usecs, &slot);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

void END(void)
{
	print_hist(&usecs);
}

LICENSE("GPL");

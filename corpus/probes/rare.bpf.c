// What few kernels have: a kind of map of Linux 6.19, and programs of remote controls.
#include <linux/bpf.h>
#include <twinbpf/script.h>

struct {
	__uint(type, 34); /* BPF_MAP_TYPE_INSN_ARRAY */
	__uint(key_size, 4);
	__uint(value_size, 16);
	__uint(max_entries, 4);
} jumps SEC(".maps");

SEC("lirc_mode2")
int remote(unsigned int *sample)
{
	return *sample & 1;
}

SEC("tp/sched/sched_switch")
int forget(void *ctx)
{
	int key = 0;

	return bpf_map_delete_elem(&jumps, &key);
}

int BEGIN(void)
{
	return puts("userspace runs");
}

LICENSE("GPL");

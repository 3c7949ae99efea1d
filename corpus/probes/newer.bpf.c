// A program and a map of kinds that only newer kernels have; the rest is for any.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

struct {
	__uint(type, 33); /* an arena, since 6.9 */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
} pages SEC(".maps");

SEC("syscall")
int touch(void *ctx)
{
	bpf_printk("%p", &pages);
	return 0;
}

int BEGIN(void)
{
	printf("scripts run\n");
	return 0;
}

LICENSE("GPL");

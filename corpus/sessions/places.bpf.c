// Programs at all places of a pattern, or at several that the command line names.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

__u64 calls, functions, several;

SEC("tp/syscalls/sys_enter_getp?id")
int getting(void *ctx)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}

SEC("?uprobe")
int patterned(void *ctx)
{
	__sync_fetch_and_add(&functions, 1);
	return 0;
}

SEC("?uprobe")
int named(void *ctx)
{
	__sync_fetch_and_add(&several, 1);
	return 0;
}

void END(void)
{
	printf("calls %llu functions %llu several %llu\n", calls, functions, several);
}

LICENSE("GPL");

// Programs that would not run, each for another reason.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

SEC("tracepont/syscalls/sys_enter_getppid")
int misspelt(void *ctx)
{
	return 0;
}

SEC("TIMER/xyz")
int period(void)
{
	return 0;
}

SEC("begin")
int lowercase(void)
{
	return 0;
}

SEC("uprobe")
int placeless(void *ctx)
{
	return 0;
}

SEC("wk=work n")
int notation(void *ctx)
{
	return 0;
}

SEC("xdp")
int unattached(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("?nothing")
int optional(void *ctx)
{
	return 0;
}

void end(void)
{
	printf("END\n");
}

int BEGIN(void)
{
	printf("BEGIN\n");
	return 0;
}

LICENSE("GPL");

/* The arguments of probed.c as parameters. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

unsigned long total;

SEC("exec=./probed;sleepable=no;wk=work a b c")
int prologue(void *ctx, int err, int a, const char *b, long c)
{
	if (!err)
		__sync_fetch_and_add(&total, a + (unsigned long)b + c);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// A place that is only known to be missing when a program is attached to it.
#include <linux/bpf.h>
#include <twinbpf/script.h>

SEC("raw_tp/no_such_tracepoint")
int raw(void *ctx)
{
	return 0;
}

SEC("raw_tp/nor_such_a_one")
int other(void *ctx)
{
	return 0;
}

LICENSE("GPL");

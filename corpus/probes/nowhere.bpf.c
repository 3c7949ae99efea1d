// Programs for places that no kernel has, each wrong in its own way.
#include <linux/bpf.h>
#include <twinbpf/script.h>

SEC("tp/sched/no_such_event")
int event(void *ctx)
{
	return 0;
}

SEC("tp/no_such_category/event")
int category(void *ctx)
{
	return 0;
}

SEC("fentry/no_such_function")
int function(void *ctx)
{
	return 0;
}

LICENSE("GPL");

#include <twinbpf/perf_script.h>

int EVENT(struct sample *s, u64 size)
{
	return 1;
}

LICENSE("GPL");

// A helper with a number no kernel has.
#include <twinbpf/script.h>

static long (*const bpf_of_tomorrow)(void) = (void *)9999;

int BEGIN(void)
{
	return bpf_of_tomorrow();
}

LICENSE("GPL");

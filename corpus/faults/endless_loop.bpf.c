// A loop without an end: --max-insns and --timeout.
#include <twinbpf/script.h>

volatile __u64 counter;

int BEGIN(void)
{
	for (;;)
		counter++;
	return 0;
}

LICENSE("GPL");

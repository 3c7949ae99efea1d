// A loop in which no instruction of the program runs: a host function calls back a host function.
#include <twinbpf/script.h>

int BEGIN(void)
{
	return bpf_loop(8 << 20, strnlen, 0, 0);
}

LICENSE("GPL");

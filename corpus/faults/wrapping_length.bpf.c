// A length that wraps around the end of the address space.
#include <twinbpf/script.h>

char buf[16];
__SIZE_TYPE__ length = -8;

int BEGIN(void)
{
	twinbpf_memset(buf + 8, 0, length);
	return 0;
}

LICENSE("GPL");

// A store to .rodata.
#include <twinbpf/script.h>

const volatile __u32 limit = 10;

int BEGIN(void)
{
	*(volatile __u32 *)&limit = 11;
	return 0;
}

LICENSE("GPL");

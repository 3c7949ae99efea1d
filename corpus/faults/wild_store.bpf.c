// A store to an address that belongs to nothing.
#include <twinbpf/script.h>

volatile __u64 address = 0xdeadbeef00000000;

int BEGIN(void)
{
	*(volatile __u32 *)address = 1;
	return 0;
}

LICENSE("GPL");

// A load from an address that belongs to nothing.
#include <twinbpf/script.h>

volatile __u64 address = 0x123456789000;

int BEGIN(void)
{
	volatile __u32 *wild = (void *)address;

	printf("before\n");
	return *wild;
}

LICENSE("GPL");

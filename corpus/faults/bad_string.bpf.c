// `%s` of a pointer that belongs to nothing.
#include <twinbpf/script.h>

volatile __u64 address = 0x10;

int BEGIN(void)
{
	printf("%d %s\n", 1, (const char *)address);
	return 0;
}

LICENSE("GPL");

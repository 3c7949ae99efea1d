// A host function gets a buffer that is shorter than the length it is told.
#include <twinbpf/script.h>

char buffer[8];
volatile __u32 length = 9;

int BEGIN(void)
{
	memset(buffer, 'x', length);
	return 0;
}

LICENSE("GPL");

// One byte behind the frame of a function, by way of a pointer.
#include <twinbpf/script.h>

volatile __s32 position = 8;

int BEGIN(void)
{
	volatile char buffer[8] = {};

	buffer[position] = 1;
	return buffer[0];
}

LICENSE("GPL");

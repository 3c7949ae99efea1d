// The length of a string that is not there.
#include <twinbpf/script.h>

int BEGIN(void)
{
	return strlen((const char *)0x10001230);
}

LICENSE("GPL");

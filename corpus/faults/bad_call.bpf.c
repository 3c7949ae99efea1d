// A call through a pointer that is not a function.
#include <twinbpf/script.h>

int data;
int (*volatile pointer)(void) = (void *)&data;

int BEGIN(void)
{
	return pointer();
}

LICENSE("GPL");

// BEGIN comes back, END prints without end: for what stops a run from outside.
#include <twinbpf/script.h>

int BEGIN(void)
{
	printf("before\n");
	return 0;
}

void END(void)
{
	for (;;)
		printf("again\n");
}

LICENSE("GPL");

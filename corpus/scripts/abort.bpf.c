// A BEGIN that returns below zero stops the run before it starts.
#include <twinbpf/script.h>

int BEGIN(void)
{
	printf("cannot start\n");
	return -2;
}

void END(void)
{
	printf("never printed\n");
}

LICENSE("GPL");

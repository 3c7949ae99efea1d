// Commands of a script, which it may only run with --unsafe.
#include <twinbpf/script.h>

int BEGIN(void)
{
	printf("before\n");
	printf("status %d\n", system("echo in between; exit 3"));
	printf("status %d\n", system("kill -9 $$"));
	return 0;
}

void END(void)
{
}

LICENSE("GPL");

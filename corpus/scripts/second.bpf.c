// A second object on the command line: its BEGIN runs after the first one's, its END too.
#include <twinbpf/script.h>

int BEGIN(void)
{
	printf("second BEGIN\n");
	return 0;
}

void END(void)
{
	printf("second END\n");
}

LICENSE("GPL");

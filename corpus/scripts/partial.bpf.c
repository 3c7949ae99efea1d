// Lines that programs and the workload write together: what BEGIN printed comes first although its line is not over.
#include <twinbpf/script.h>

int BEGIN(void)
{
	printf("begin ");
	return 0;
}

void END(void)
{
	printf("end\n");
}

LICENSE("GPL");

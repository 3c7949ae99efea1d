// A call of a weak symbol that nobody provides, without asking first.
#include <twinbpf/script.h>

extern int nobody_has_this(int) __ksym __weak;

int BEGIN(void)
{
	printf("before\n");
	return nobody_has_this(1);
}

LICENSE("GPL");

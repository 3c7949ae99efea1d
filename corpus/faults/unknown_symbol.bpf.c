// A call of a strong symbol that nobody provides: refused at load.
#include <twinbpf/script.h>

extern int frobnicate(int) __ksym;

int BEGIN(void)
{
	return frobnicate(1);
}

LICENSE("GPL");

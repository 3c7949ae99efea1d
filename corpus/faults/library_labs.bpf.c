// build: -fno-builtin
// A C library has this function, with another type than the object says.
#include <twinbpf/script.h>

extern int labs(int x) __ksym;

int BEGIN(void)
{
	return labs(-1) != 1;
}

LICENSE("GPL");

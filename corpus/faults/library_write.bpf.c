// A C library has this function. The object passes a pointer as a number, which a prototype of its own cannot make safe.
#include <twinbpf/script.h>

extern long write(int fd, unsigned long buf, unsigned long count) __ksym;

int BEGIN(void)
{
	return write(1, (unsigned long)"through C\n", 10) != 10;
}

LICENSE("GPL");

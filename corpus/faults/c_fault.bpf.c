// With --trust and a library: a fault inside a C function, which got a bad pointer.
#include <twinbpf/script.h>

extern char *strchrnul(const char *text, int c) __ksym;

int BEGIN(void)
{
	return strchrnul((const char *)0x1230, 'x') != NULL;
}

LICENSE("GPL");

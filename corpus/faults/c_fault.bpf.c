// With --trust and a library: a fault inside a C function, which got a bad pointer.
#include <twinbpf/script.h>

extern char *strpbrk(const char *text, const char *accept) __ksym;

int BEGIN(void)
{
	return strpbrk((const char *)0x1230, "x") != NULL;
}

LICENSE("GPL");

// A C library has this function, and its prototype takes a pointer: it would follow it out of the sandbox.
#include <twinbpf/script.h>

extern char *getenv(const char *name) __ksym;

int BEGIN(void)
{
	return getenv("HOME") != NULL;
}

LICENSE("GPL");

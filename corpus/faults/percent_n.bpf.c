// `%n` would write memory on the word of a format: refused.
#include <twinbpf/script.h>

int written;

int BEGIN(void)
{
	twinbpf_printf("abc%n\n", &written);
	return written;
}

LICENSE("GPL");

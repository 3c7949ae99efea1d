// Entry points in sections of their own, in the spelling that keeps stock libbpf from loading them.
#include <twinbpf/script.h>

int order;

SEC("?BEGIN")
int BEGIN(void)
{
	printf("?BEGIN %d\n", ++order);
	return 0;
}

SEC("?END")
int END(void)
{
	printf("?END %d\n", ++order);
	return 0;
}

LICENSE("GPL");

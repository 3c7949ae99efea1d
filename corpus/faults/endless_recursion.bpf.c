// A function that calls itself for ever, with a small frame: the call depth ends it.
#include <twinbpf/script.h>

volatile __u32 limit = 0xffffffff, last;

__noinline __u32 down(__u32 n)
{
	__u32 result;

	if (n == limit)
		return 0;
	result = down(n + 1);
	last = n; /* something left to do, so that clang makes no loop of this */
	return result;
}

int BEGIN(void)
{
	return down(0);
}

LICENSE("GPL");

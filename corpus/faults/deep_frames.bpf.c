// build: -mllvm -bpf-stack-size=65536
// Recursion with a large frame: the stack bytes end it long before the call depth.
#include <twinbpf/script.h>

__noinline __u32 down(__u32 n)
{
	volatile __u8 frame[50000];

	frame[n] = n;
	return n == 1000 ? 0 : down(n + 1) + frame[n];
}

int BEGIN(void)
{
	return down(0);
}

LICENSE("GPL");

// Ways for a plugin to go wrong, a function each, and one that goes right: a host goes on after any of them.
#include <twinbpf/script.h>

HOST void give_up(void);

__u64 calls;
volatile __u32 limit = 0xffffffff, last;

int fine(void)
{
	__sync_fetch_and_add(&calls, 1);
	return 1;
}

int wild(const int *pointer)
{
	return *pointer;
}

int bad_call(int (*function)(void))
{
	return function();
}

int endless(void)
{
	for (volatile int i = 0;; i++)
		;
	return 0;
}

__noinline __u32 down(__u32 n)
{
	__u32 result;

	if (n == limit)
		return 0;
	result = down(n + 1);
	last = n; /* something left to do, so that clang makes no loop of this */
	return result;
}

int deep(void)
{
	return down(0);
}

int panics(void)
{
	give_up();
	return 0;
}

LICENSE("GPL");

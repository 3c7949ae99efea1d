// Functions that call themselves and each other: the VM gives each call a frame of its own.
#include <twinbpf/script.h>

static __noinline __u64 factorial(__u32 n)
{
	return n < 2 ? 1 : n * factorial(n - 1);
}

__noinline __u64 fibonacci(__u32 n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static __noinline __u64 ackermann(__u64 m, __u64 n)
{
	if (m == 0)
		return n + 1;
	if (n == 0)
		return ackermann(m - 1, 1);
	return ackermann(m - 1, ackermann(m, n - 1));
}

static __noinline bool odd(__u32 n);

static __noinline bool even(__u32 n)
{
	volatile __u32 frame[4] = { n, n, n, n }; /* keeps this a call: clang turns a plain tail call into a loop */

	return n == 0 ? true : odd(frame[3] - 1);
}

static __noinline bool odd(__u32 n)
{
	volatile __u32 frame[4] = { n, n, n, n };

	return n == 0 ? false : even(frame[2] - 1);
}

static __noinline void hanoi(__u32 disks, char from, char to, char over, __u32 *moves)
{
	if (disks == 0)
		return;
	hanoi(disks - 1, from, over, to, moves);
	if (++*moves <= 3)
		printf("move %u: %c to %c\n", *moves, from, to);
	hanoi(disks - 1, over, to, from, moves);
}

int BEGIN(void)
{
	volatile __u32 twenty = 20;
	__u32 moves = 0;

	printf("20! = %llu\n", factorial(twenty));
	printf("fibonacci(20) = %llu\n", fibonacci(twenty));
	printf("ackermann(2, 3) = %llu\n", ackermann(twenty - 18, 3));
	printf("20 is %s\n", even(twenty) ? "even" : "odd");
	hanoi(twenty - 14, 'A', 'C', 'B', &moves);
	printf("%u moves\n", moves);
	return 0;
}

LICENSE("GPL");

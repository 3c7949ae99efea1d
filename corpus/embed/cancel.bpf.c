// Programs that do not end by themselves within any time that a test waits: in loops, in callbacks of shipped functions, in
// host functions.
#include <twinbpf/script.h>

HOST __u64 host(__u64 number);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1 << 16);
} large SEC(".maps");

volatile __u64 turns;
int numbers[1 << 20];
char block[1 << 24], other[1 << 24];

int fine(void)
{
	return 1;
}

int endless(void)
{
	for (;;)
		turns++;
	return 0;
}

/* Loops that the kernel's verifier accepts. */
int may_goto(void)
{
again:
	for (;;) {
		asm volatile goto(".byte 0xe5; .byte 0; .long ((%l[over] - . - 8) / 8) & 0xffff; .short 0" : : : : over);
		turns++;
	}
over:
	goto again;
	return 0;
}

/* The host function is called at once. */
int calls_host(__u64 number)
{
	return host(number);
}

/* A host function in a loop. */
int calls_host_often(__u64 number)
{
	for (;;)
		turns += host(number);
	return 0;
}

static __noinline __u64 down(__u64 n)
{
	__u64 result = n ? down(n - 1) : 0;

	turns++;
	return result + turns;
}

/* Deep recursion, over and over. */
int recursion(void)
{
	for (;;)
		turns += down(200);
	return 0;
}

static int backwards(const void *a, const void *b)
{
	turns++;
	return *(const int *)b - *(const int *)a;
}

int sorts(void)
{
	for (;;)
		qsort(numbers, 1 << 20, sizeof(numbers[0]), backwards);
	return 0;
}

static int entry(const void *key, void *value, void *ctx)
{
	turns++;
	return 0;
}

int walks(void)
{
	for (;;)
		map_for_each(&large, entry, 0, 0);
	return 0;
}

static long element(void *map, const void *key, void *value, void *ctx)
{
	turns++;
	return 0;
}

int walks_as_kernel(void)
{
	for (;;)
		bpf_for_each_map_elem(&large, element, 0, 0);
	return 0;
}

static long turn(__u32 index, void *ctx)
{
	turns++;
	return 0;
}

int loops(void)
{
	for (;;)
		bpf_loop(1 << 23, turn, 0, 0);
	return 0;
}

int prints(void)
{
	for (;;)
		printf("%1000000d\n", (int)turns);
	return 0;
}

int prints_map(void)
{
	for (;;)
		print_map(&large);
	return 0;
}

int copies(void)
{
	for (;;) {
		memmove(block, other, sizeof(block));
		memset(other, 1, sizeof(other));
	}
	return 0;
}

int compares(void)
{
	for (;;)
		turns += memcmp(block, other, sizeof(block)) == 0;
	return 0;
}

LICENSE("GPL");

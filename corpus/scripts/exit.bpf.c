// exit ends the run with its status, from however deep; END still runs.
#include <twinbpf/script.h>

volatile int wanted = 3;

static __noinline void give_up(int depth)
{
	volatile char frame[32] = { depth };

	if (depth > 0)
		give_up(depth - 1);
	exit(wanted);
	printf("never printed %d\n", frame[0]);
}

int BEGIN(void)
{
	printf("before\n");
	give_up(4);
	printf("never printed\n");
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// Addresses of host functions: clang knows strncmp itself and writes no type for it, the host has it all the same.
#include <twinbpf/script.h>

typedef int compare_fn(const char *a, const char *b, __SIZE_TYPE__ n);

compare_fn *volatile in_data = strncasecmp;

int BEGIN(void)
{
	compare_fn *volatile in_code = strncmp;
	compare_fn *both[2] = { in_code, in_data };

	for (int i = 0; i < 2; i++)
		printf("%d %d\n", both[i]("one", "ONE", 3) != 0, both[i]("same", "same", 4));
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

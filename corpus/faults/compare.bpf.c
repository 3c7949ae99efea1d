// A comparison function that follows a null pointer: under qsort of the machine, or of a C library with --trust.
#include <twinbpf/script.h>

static int numbers[] = { 3, 2, 1 };
static int *volatile nothing;

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *nothing;
}

int BEGIN(void)
{
	nothing = NULL;
	qsort(numbers, 3, sizeof(numbers[0]), compare);
	return 0;
}

LICENSE("GPL");

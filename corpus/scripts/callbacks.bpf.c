// Function pointers in every place they turn up: a variable, an argument, a structure, a table, a result.
#include <twinbpf/script.h>

typedef int (*operation)(int, int);

static __noinline int plus(int a, int b)
{
	return a + b;
}

static __noinline int minus(int a, int b)
{
	return a - b;
}

static __noinline int times(int a, int b)
{
	return a * b;
}

struct rule {
	char sign;
	operation apply;
};

static struct rule rules[] = { { '+', plus }, { '-', minus }, { '*', times } };

/* Function pointers as result and as argument. */
static __noinline operation pick(char sign)
{
	__u32 i;

	for (i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (rules[i].sign == sign)
			return rules[i].apply;
	return NULL;
}

static __noinline int fold(const int *values, __u32 count, operation apply)
{
	int result = values[0];
	__u32 i;

	for (i = 1; i < count; i++)
		result = apply(result, values[i]);
	return result;
}

/* A quicksort in the manner of C's, with the comparison passed in. It calls itself and the comparison. */
static __noinline void sort(int *values, int from, int to, int (*compare)(int, int))
{
	int left = from, right = to, pivot = values[(from + to) >> 1];

	while (left <= right) {
		while (compare(values[left], pivot) < 0)
			left++;
		while (compare(values[right], pivot) > 0)
			right--;
		if (left <= right) {
			int swap = values[left];

			values[left++] = values[right];
			values[right--] = swap;
		}
	}
	if (from < right)
		sort(values, from, right, compare);
	if (left < to)
		sort(values, left, to, compare);
}

static int show(const int *values, __u32 count)
{
	__u32 i;

	for (i = 0; i < count; i++)
		printf("%d%c", values[i], i + 1 == count ? '\n' : ' ');
	return 0;
}

static __noinline int backwards(int a, int b)
{
	return b - a;
}

int values[] = { 4, -1, 7, 0, 3, 9, -6, 2 };

int BEGIN(void)
{
	printf("%d %d %d\n", pick('+')(7, 5), pick('-')(7, 5), pick('*')(7, 5));
	printf("%d\n", pick('/') == NULL);
	printf("%d %d\n", fold(values, 8, plus), fold(values, 3, times));
	sort(values, 0, 7, minus);
	show(values, 8);
	rules[1].apply = backwards; /* the table is writable */
	sort(values, 0, 7, pick('-'));
	show(values, 8);
	return 0;
}

LICENSE("GPL");

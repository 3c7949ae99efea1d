// qsort and bsearch with comparison functions of the script: served by the machine, or with --trust by a C library.
#include <twinbpf/script.h>

struct word {
	char text[12];
	int length;
};

static int numbers[] = { 42, -7, 1000, 0, 42, -7000, 13, 8, 99, 1 };
static struct word words[] = {
	{ "pear", 4 }, { "fig", 3 }, { "banana", 6 }, { "apple", 5 }, { "cherry", 6 }, { "date", 4 },
};
static int calls;

static int by_value(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	calls++;
	return x < y ? -1 : x > y;
}

static int by_length_then_text(const void *a, const void *b)
{
	const struct word *x = a, *y = b;

	if (x->length != y->length)
		return x->length - y->length;
	return strcmp(x->text, y->text);
}

/* Sorts something else inside a comparison. */
static int reversed(const void *a, const void *b)
{
	int pair[2];

	pair[0] = *(const int *)a;
	pair[1] = *(const int *)b;
	qsort(pair, 2, sizeof(pair[0]), by_value);
	return pair[0] == pair[1] ? 0 : pair[0] == *(const int *)a ? 1 : -1;
}

int BEGIN(void)
{
	const int count = sizeof(numbers) / sizeof(numbers[0]);
	int key = 99, missing = 100;
	int *found;

	qsort(numbers, count, sizeof(numbers[0]), by_value);
	for (int i = 0; i < count; i++)
		printf("%d ", numbers[i]);
	printf("\n");
	found = bsearch(&key, numbers, count, sizeof(numbers[0]), by_value);
	printf("%d at %d\n", key, found ? (int)(found - numbers) : -1);
	found = bsearch(&missing, numbers, count, sizeof(numbers[0]), by_value);
	printf("%d at %d\n", missing, found ? (int)(found - numbers) : -1);
	qsort(words, sizeof(words) / sizeof(words[0]), sizeof(words[0]), by_length_then_text);
	for (int i = 0; i < 6; i++)
		printf("%s ", words[i].text);
	printf("\n");
	qsort(numbers, count, sizeof(numbers[0]), reversed);
	for (int i = 0; i < count; i++)
		printf("%d ", numbers[i]);
	printf("\n");
	qsort(numbers, 0, sizeof(numbers[0]), by_value);
	qsort(numbers, 1, sizeof(numbers[0]), by_value);
	return calls > 0 ? 0 : 1;
}

LICENSE("GPL");

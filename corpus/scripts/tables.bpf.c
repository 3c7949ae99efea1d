// Tables of pointers: to strings in .rodata, to variables in .data, to functions. clang leaves a relocation
// (R_BPF_64_ABS64) for each slot, which somebody has to apply.
#include <twinbpf/script.h>

const char *const days[] = { "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun" };

int apples = 3, pears = 5;
struct {
	const char *name;
	int *amount;
} stock[] = {
	{ "apples", &apples },
	{ "pears", &pears },
};

/* A pointer into the middle of an array. */
int primes[] = { 2, 3, 5, 7, 11, 13 };
int *third = &primes[2];

static int add(int a, int b)
{
	return a + b;
}

static int multiply(int a, int b)
{
	return a * b;
}

int (*const volatile operations[])(int, int) = { add, multiply };

int BEGIN(void)
{
	volatile __u32 zero = 0;
	__u32 i;

	for (i = zero; i < sizeof(days) / sizeof(*days); i++)
		printf("%s%s", days[i], i == 6 ? "\n" : " ");
	for (i = zero; i < 2; i++) {
		*stock[i].amount += 10;
		printf("%d %s\n", *stock[i].amount, stock[i].name);
	}
	printf("apples are %d now\n", apples);
	printf("third prime is %d, the next %d\n", *third, third[1]);
	return 0;
}

void END(void)
{
	volatile __u32 zero = 0;

	printf("6 + 7 = %d\n", operations[zero](6, 7));
	printf("6 * 7 = %d\n", operations[zero + 1](6, 7));
}

LICENSE("GPL");

// Global variables in every kind of data section. `--set` changes the constants before load:
//     twinbpf run --set greeting=Bonjour --set level=7 --set mode=LOUD globals.bpf.o
#include <twinbpf/script.h>

enum mode { QUIET = 1, LOUD = 5 };

const volatile char greeting[16] = "Hello";
const volatile int level = -3;
const volatile enum mode mode = QUIET;
const volatile bool flag = false;
const volatile __u8 tiny = 200;
const volatile __u64 wide = 0x123456789abcdef0ULL;

int counter = 40;
int calls;
static int hidden = 5;
static __u64 zeroes[100];

struct point {
	short x, y;
	const char *label;
} origin = { -1, 1, "origin" };

int foo SEC(".data.foo") = 11;
int bar SEC(".data.bar") = 22;
const volatile int fixed SEC(".rodata.fixed") = 33;
int blank SEC(".bss.blank");

__weak int maybe = 77;
__hidden int secret = 88;

int BEGIN(void)
{
	static int remembered = 1;

	calls++;
	counter += 2;
	hidden *= 2;
	remembered += calls;
	zeroes[99] = remembered;
	foo++;
	bar--;
	blank = fixed * 2;
	origin.y -= 3;
	printf("%s, level %d, mode %d, flag %d\n", (const char *)greeting, level, mode, flag);
	printf("%u %llx\n", tiny, wide);
	return 0;
}

void END(void)
{
	calls++;
	printf("counter %d, calls %d, hidden %d, zeroes %llu %llu\n", counter, calls, hidden, zeroes[0], zeroes[99]);
	printf("foo %d, bar %d, fixed %d, blank %d\n", foo, bar, fixed, blank);
	printf("%s %d %d, maybe %d, secret %d\n", origin.label, origin.x, origin.y, maybe, secret);
}

LICENSE("GPL");

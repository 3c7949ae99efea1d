// With --trust: C functions of every kind of prototype, called with more in the registers than the types say.
#include <twinbpf/script.h>

extern long imaxabs(long number) __ksym __weak;
extern unsigned short ntohs(unsigned short number) __ksym __weak;
extern int toupper(int c) __ksym __weak;
extern double ldexp(double number, int exponent) __ksym __weak;
extern float ldexpf(float number, int exponent) __ksym __weak;
extern int asprintf(char **text, const char *format, ...) __ksym __weak;
extern void srand48(long seed) __ksym __weak;
extern long lrand48(void) __ksym __weak;
extern double drand48(void) __ksym __weak;
extern void *memmem(const void *in, __SIZE_TYPE__ len, const void *what, __SIZE_TYPE__ size) __ksym __weak;

volatile __u64 wide = 0xabcdef0100000000;
volatile double half = 0.5;
volatile float quarter = 0.25;

int BEGIN(void)
{
	union {
		float number;
		__u32 word;
	} bits;
	char *text;
	long first;
	int length;

	printf("%ld %d\n", imaxabs((long)wide >> 56), imaxabs((long)wide) > 0);
	printf("%x\n", ntohs((unsigned short)(wide + 0x51234)));
	printf("%c%c%d\n", toupper((int)(wide + 'b')), toupper('!'), toupper((int)(wide - 1)));
	printf("%.3f %.5f\n", ldexp(half, (int)(wide + 4)), ldexp(half, (int)(wide - 1)));
	bits.number = ldexpf(quarter, (int)(wide - 2));
	printf("%x\n", bits.word);
	length = asprintf(&text, "%d/%s/%lx", -12, "words", (long)wide);
	printf("%d %s\n", length, text);
	printf("%s\n", (char *)memmem(text, length, "wo", 2));
	srand48(7);
	first = lrand48();
	srand48(7);
	printf("%d %d\n", first == lrand48(), first >= 0);
	printf("%.6f\n", drand48());
	return 0;
}

/* libbpf takes an object of BEGIN alone for one whose program has no type. */
void END(void)
{
}

LICENSE("GPL");

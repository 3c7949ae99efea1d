// What printf takes: more than four values, every kind of scalar, the flags of the C format.
#include <twinbpf/script.h>

volatile signed char tiny = -5;
volatile unsigned char byte = 250;
volatile short small = -300;
volatile int number = -70000;
volatile unsigned int word = 4000000000U;
volatile long long big = -5000000000LL;
volatile double pi = 3.14159265358979;
volatile float half = 0.5f, huge = -1.5e30f, denormal = 1e-40f;
char name[] = "twinbpf";

int BEGIN(void)
{
	printf("no values\n");
	printf("%d %d %d %d\n", 1, 2, 3, 4);
	printf("%d %d %d %d %d\n", 1, 2, 3, 4, 5);
	printf("%d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9,
	       10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24);
	printf("%hhd %hhu %hd %d %u %lld\n", tiny, byte, small, number, word, big);
	/* Values travel as 64 bits, sign-extended by their own type. */
	printf("%ld %ld %ld %ld\n", (long)tiny, (long)small, (long)number, (long)word);
	return 0;
}

void END(void)
{
	printf("%f %.3f %e %g\n", pi, pi, pi, pi);
	printf("%g %g %g %g\n", half, huge, denormal, -half);
	printf("%d %s %.2f %c %x %s\n", 1, "two", 3.0, '4', 5, name);
	printf("[%5d] [%-5d] [%05d] [%+d]\n", 42, 42, 42, 42);
	printf("[%8s] [%-8s] [%.4s] [%*s]\n", name, name, name, 9, name);
	printf("[%x] [%X] [%#x] [%o]\n", 48879, 48879, 48879, 8);
	printf("[%llx] [%hhx] [%zu] [%%]\n", 0x123456789abcdefULL, (unsigned char)0x34, sizeof(name));
}

LICENSE("GPL");

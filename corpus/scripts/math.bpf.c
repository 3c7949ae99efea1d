// build: -fno-builtin
// Floating point through the C library: `twinbpf run --lib libm.so.6 math.bpf.o`. BPF has no floating-point
// instructions, so clang compiles no arithmetic on double, but calls and printf carry the values. -fno-builtin keeps
// clang from turning pow(x, -1) into 1 / x and floor into an instruction of its own.
#include <twinbpf/script.h>

extern double sqrt(double x) __ksym __weak;
extern double pow(double x, double y) __ksym __weak;
extern double floor(double x) __ksym __weak;
extern double fma(double x, double y, double z) __ksym __weak;
extern float sqrtf(float x) __ksym __weak;
extern double ldexp(double x, int exponent) __ksym __weak;
extern long lround(double x) __ksym __weak;

volatile double two = 2, three = 3, small = -2.5;
volatile float nine = 9;

int BEGIN(void)
{
	printf("%.6f\n", sqrt(two));
	printf("%g %g\n", pow(two, 10), pow(two, -1));
	printf("%g\n", floor(small));
	printf("%g\n", fma(two, three, small)); /* 2 * 3 - 2.5 */
	printf("%g\n", sqrtf(nine));
	printf("%g\n", ldexp(three, -2)); /* a negative int argument */
	printf("%ld\n", lround(small));   /* a negative result */
	printf("%.3f %.3f %.3f %.3f %.3f\n", sqrt(1), sqrt(two), sqrt(three), sqrt(4.0), two);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

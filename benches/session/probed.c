/*
 * A function with three arguments, called often: probed FILE COUNT writes the nanoseconds of a call into FILE.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
__attribute__((noipa)) void work(int a, const char *b, long c) { __asm__ volatile("" :: "r"(a), "r"(b), "r"(c)); }
int main(int argc, char **argv)
{
	long n = atol(argv[2]);
	struct timespec s, e;
	clock_gettime(CLOCK_MONOTONIC, &s);
	for (long i = 0; i < n; i++)
		work(i, "b", i + 1);
	clock_gettime(CLOCK_MONOTONIC, &e);
	FILE *f = fopen(argv[1], "w");
	fprintf(f, "%f\n", ((e.tv_sec - s.tv_sec) * 1e9 + (e.tv_nsec - s.tv_nsec)) / n);
	return fclose(f);
}

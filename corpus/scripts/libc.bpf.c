// With --trust: functions of C that take and give pointers, and memory that is C's.
#include <twinbpf/script.h>
#undef strftime /* the one of C, which takes a struct tm */
struct tm {
	int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_wday, tm_yday, tm_isdst;
	long tm_gmtoff;
	const char *tm_zone;
};

extern void *malloc(__SIZE_TYPE__ size) __ksym __weak;
extern void free(void *memory) __ksym __weak;
extern char *strdup(const char *text) __ksym __weak;
extern char *strchrnul(const char *text, int c) __ksym __weak;
extern struct tm *gmtime_r(const long *time, struct tm *result) __ksym __weak;
extern __SIZE_TYPE__ strftime(char *buf, __SIZE_TYPE__ size, const char *format, const struct tm *time) __ksym __weak;
extern double strtod(const char *text, char **end) __ksym __weak;

volatile double number;

int BEGIN(void)
{
	const long time = 1000000000;
	struct tm broken_down;
	char text[32], *copy, *end;
	__u64 *cells;

	copy = strdup("from the heap");
	printf("%s, then %s\n", copy, strchrnul(copy, 't'));
	copy[0] = 'F';
	printf("%s, %d long\n", copy, (int)strlen(copy));
	free(copy);

	cells = malloc(8 * sizeof(cells[0]));
	for (int i = 0; i < 8; i++)
		cells[i] = i * i;
	__sync_fetch_and_add(&cells[7], 1);
	printf("%llu %llu %llu\n", cells[2], cells[7], __sync_lock_test_and_set(&cells[0], 5));
	printf("%llu\n", cells[0]);
	free(cells);

	gmtime_r(&time, &broken_down);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &broken_down);
	printf("%s\n", text);
	number = strtod("2.75 apples", &end);
	printf("%.2f%s\n", number, end);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// Text to numbers and back: snprintf of the host, and the kernel's bpf_strtol, bpf_strtoul, bpf_strncmp, bpf_snprintf.
#include <twinbpf/script.h>

char buf[32];
static const char format[] = "%d-%u-%s";

int BEGIN(void)
{
	__u64 values[3] = { (__u64)-3, 4, (__u64)"five" };
	unsigned long natural = 0;
	long number = 0;

	printf("%d", snprintf(buf, sizeof(buf), "%d+%d", 1, 2));
	printf(" %s\n", buf);
	printf("%d", snprintf(buf, sizeof(buf), "%s %s %s %d", "a", "b", "c", 4));
	printf(" %s\n", buf);
	/* Returns the length the whole text has, writes what fits. */
	printf("%d", snprintf(buf, 8, "0123456789"));
	printf(" %s\n", buf);
	printf("%d\n", snprintf(NULL, 0, "%05d", 42));

	printf("%ld", bpf_strtol("-123 rest", 9, 0, &number));
	printf(" %ld\n", number);
	printf("%ld", bpf_strtol("0x7f", 4, 0, &number));
	printf(" %ld\n", number);
	printf("%ld", bpf_strtol("777", 3, 8, &number));
	printf(" %ld\n", number);
	printf("%ld\n", bpf_strtol("nothing", 7, 0, &number));             /* -EINVAL */
	printf("%ld\n", bpf_strtol("9223372036854775808", 19, 10, &number)); /* -ERANGE */
	printf("%ld", bpf_strtoul("42", 2, 10, &natural));
	printf(" %lu\n", natural);
	printf("%ld\n", bpf_strtoul("-1", 2, 10, &natural)); /* -EINVAL: there is a sign */

	printf("%d %d\n", bpf_strncmp("same", 4, "same") == 0, bpf_strncmp("abc", 3, "abd") < 0);

	/* The helper counts the terminator. */
	printf("%ld", bpf_snprintf(buf, sizeof(buf), format, values, sizeof(values)));
	printf(" %s\n", buf);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// The string functions of the host.
#include <twinbpf/script.h>

char path[] = "/usr/share/doc/copyright";
char padded[8] = "abc";
char buf[64], small[8];
volatile __u32 zero;

int BEGIN(void)
{
	char *s = path + zero; /* so that clang does not compute the results itself */
	char *end;

	printf("%lu %lu %lu\n", strlen(s), strnlen(s, 4), strnlen(s, 100));
	printf("%d %d %d\n", strcmp(s, s), strcmp(s, s + 4) > 0, strcmp("/usr", s) < 0);
	printf("%d %d\n", strncmp(s, "/usr/lib", 5), strncmp(s, "/usr/lib", 6) > 0);
	printf("%d %d\n", strcasecmp(s, "/USR/Share/Doc/COPYRIGHT"), strncasecmp(s, "/USRx", 4));
	printf("%s %s\n", strchr(s, 's'), strrchr(s, '/'));
	printf("%d %ld\n", strchr(s, 'q') == NULL, strchr(s, 0) - s);
	printf("%s %d\n", strstr(s, "doc"), strstr(s, "dock") == NULL);
	printf("%lu %lu\n", strspn(s, "/usr"), strcspn(s, "ch"));
	printf("%s\n", strcpy(buf, s));
	printf("%s\n", strcat(buf, s + 18)); /* "yright" */
	printf("%s\n", strncat(buf, s, 4));
	strncpy(small, s, 4); /* no terminator of its own; the rest was zero */
	printf("%s|\n", small);
	strncpy(small, padded + zero, sizeof(small)); /* fills up with zeroes */
	printf("%s| %d\n", small, small[4]);
	printf("%d %ld %d\n", atoi("  -42x"), atol("1234567890123"), atoi("none"));
	printf("%ld", strtol("0x1F rest", &end, 0));
	printf(" [%s]", end);
	printf(" %ld %ld\n", strtol("-077", NULL, 8), strtol("zz", NULL, 36));
	printf("%lu %lu\n", strtoul("18446744073709551615", NULL, 10), strtoul("ff", &end, 16));
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// What clang itself calls: an extern printf without the header's macro becomes puts or putchar where it can, and those
// come without a type. A script of 2018 looks like this.
#define SEC(name) __attribute__((section(name), used))

extern int printf(const char *fmt, ...);
extern int puts(const char *line);

int BEGIN(void)
{
	printf("becomes puts\n");
	printf("\n");
	printf("%s\n", "also puts");
	printf("%c", '*');
	printf(" %d stays printf\n", 4);
	puts("puts");
	return 0;
}

void END(void)
{
	printf("END %lu\n", 1UL << 40);
}

char _license[] SEC("license") = "GPL";

// The memory functions of the host, with lengths clang cannot see, and those it expands in place.
#include <twinbpf/script.h>

char source[2048], target[2048];
volatile __u32 size = 2048, few = 5, zero;

int BEGIN(void)
{
	char text[16] = "0123456789abcde";
	__u32 i;

	for (i = 0; i < sizeof(source); i++)
		source[i] = i * 7;
	memcpy(target, source, size);
	printf("%d\n", memcmp(target, source, size));
	source[2000]++;
	printf("%d %d\n", memcmp(target, source, size) < 0, memcmp(target, source, 2000 + zero));

	memmove(text + 2, text, few); /* they overlap */
	printf("%s\n", text);
	memmove(text, text + 2, few);
	printf("%s\n", text);
	memset(text + 1, '-', few);
	printf("%s\n", text);
	printf("%s %d\n", (char *)memchr(text, 'a', size / 128), memchr(text, 'z', size / 128) == NULL);

	memset(target, 0, 1024); /* the longest that is expanded in place */
	printf("%d %d\n", target[1023], target[1024] == source[1024]);
	memset(target, 1, sizeof(target));
	printf("%d %d\n", target[0], target[2047]);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

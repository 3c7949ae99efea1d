// Entry points by section alone; the functions may have any name.
#include <twinbpf/script.h>

SEC("BEGIN")
int begin(void)
{
	printf("begin\n");
	return 0;
}

SEC("END")
int finish(void)
{
	printf("finish\n");
	return 0;
}

LICENSE("GPL");

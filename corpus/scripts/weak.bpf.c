// A weak function nobody provides has address 0, and a program may ask.
#include <twinbpf/script.h>

extern int nobody_has_this(int) __ksym __weak;
extern int strlen_of_tomorrow(const char *) __ksym __weak;

int BEGIN(void)
{
	if (nobody_has_this)
		printf("it is %d\n", nobody_has_this(1));
	else
		printf("not there\n");
	if (strlen_of_tomorrow)
		return strlen_of_tomorrow("x");
	printf("%d\n", twinbpf_printf != NULL);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

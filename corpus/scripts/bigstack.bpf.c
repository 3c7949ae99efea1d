// build: -mllvm -bpf-stack-size=4096
// A frame larger than the kernel's 512 bytes; only the VM runs such programs.
#include <twinbpf/script.h>

static __noinline __u32 sum(const __u32 *values, __u32 count)
{
	__u32 total = 0, i;

	for (i = 0; i < count; i++)
		total += values[i];
	return total;
}

int BEGIN(void)
{
	__u32 values[900];
	__u32 i;

	for (i = 0; i < 900; i++)
		values[i] = i;
	printf("%u\n", sum(values, 900)); /* 899 * 900 / 2 */
	return 0;
}

LICENSE("GPL");

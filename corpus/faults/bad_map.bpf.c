// A pointer that is no map where a helper wants one.
#include <twinbpf/script.h>

int data = 1;

int BEGIN(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&data, &key) != NULL;
}

LICENSE("GPL");

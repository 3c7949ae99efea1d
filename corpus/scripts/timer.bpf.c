// Entry points of a session without the kernel: TIMER until exit, EVENT for what other scripts send, signals.
#include <twinbpf/script.h>

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ticks SEC(".maps");

int passed;

int BEGIN(void)
{
	int first = 0;

	printf("BEGIN\n");
	bpf_ringbuf_output(&ticks, &first, sizeof(first), 0);
	set_timer(1000000);
	return 0;
}

int TIMER(void)
{
	passed++;
	bpf_ringbuf_output(&ticks, &passed, sizeof(passed), 0);
	if (passed == 3)
		exit(3);
	return 0;
}

SEC("?EVENT/ticks")
int on_tick(int *tick, __u64 size)
{
	printf("tick %d of %llu bytes\n", *tick, size);
	return 0;
}

void END(void)
{
	printf("END after %d\n", passed);
}

LICENSE("GPL");

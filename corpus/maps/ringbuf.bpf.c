// Ring buffer: records written in place or copied, and what the buffer says about itself.
#include <twinbpf/script.h>

enum { AVAILABLE = 0, SIZE = 1 }; /* BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct event {
	__u64 number;
	char text[8];
};

int BEGIN(void)
{
	struct event *event;

	printf("%llu %llu\n", bpf_ringbuf_query(&events, SIZE), bpf_ringbuf_query(&events, AVAILABLE));
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return -1;
	event->number = 1;
	memcpy(event->text, "first", 6);
	bpf_ringbuf_submit(event, 0);
	/* A record takes a header of 8 and its bytes, rounded up to 8. */
	printf("%llu\n", bpf_ringbuf_query(&events, AVAILABLE));
	printf("%ld\n", bpf_ringbuf_output(&events, "hello", 5, 0));
	printf("%llu\n", bpf_ringbuf_query(&events, AVAILABLE));
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (event)
		bpf_ringbuf_discard(event, 0); /* the reader skips it, it takes room until then */
	printf("%llu\n", bpf_ringbuf_query(&events, AVAILABLE));
	printf("%d\n", bpf_ringbuf_reserve(&events, 5000, 0) == NULL); /* larger than the buffer */
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

#include <twinbpf/perf_script.h>

struct trace_event_raw_sys_enter {
	s64 id;
} RECORDED;

u64 slots[65];

SEC("EVENT/raw_syscalls:sys_enter") int enter(struct sample *s, u64 size)
{
	const struct trace_event_raw_sys_enter *e = s->raw;
	u64 id = e->id;
	u32 slot = 0;

	while (id) {
		id >>= 1;
		slot++;
	}
	slots[slot & 63]++;
	return 1;
}

void END(void)
{
	for (u32 i = 0; i < 65; i++)
		if (slots[i])
			printf("%u %llu\n", i, slots[i]);
}

LICENSE("GPL");

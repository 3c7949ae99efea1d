// Counts and prints calls of getppid by `twcalls`; programs of userspace fault when they are told to.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/script.h>

const volatile __u64 faulty_event = ~0ULL; /* the record with this number */
const volatile bool faulty_timer, faulty_signal, quiet;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} records SEC(".maps");

__u64 sent, came;

SEC("tracepoint/syscalls/sys_enter_getppid")
int call(void *ctx)
{
	char comm[16];
	__u64 n;

	bpf_get_current_comm(comm, sizeof(comm));
	if (__builtin_memcmp(comm, "twcalls", 8))
		return 0;
	n = __sync_fetch_and_add(&sent, 1);
	bpf_ringbuf_output(&records, &n, sizeof(n), 0);
	return 0;
}

static int fault(void)
{
	return *(volatile int *)0;
}

int EVENT(const __u64 *number, __u64 size)
{
	if (*number == faulty_event)
		return fault();
	came++;
	printf("event %llu\n", *number);
	return 0;
}

SEC("TIMER/50ms")
int timer(void)
{
	return faulty_timer ? fault() : 0;
}

SEC("SIGNAL/USR1")
int on_signal(void)
{
	return faulty_signal ? fault() : 0;
}

int BEGIN(void)
{
	if (!quiet)
		printf("BEGIN\n");
	return 0;
}

void END(void)
{
	printf("sent %llu came %llu\n", sent, came);
}

LICENSE("GPL");

// What a call costs, 1,000 of them a run: of nothing at all, of a host function, of a C function, of a subprogram, of a
// callback, of an iterator; and tail calls, 33 of them, with an index that is known and one that is not.
// Each program returns the sum that the calls made.
// build: -mcpu=v2
#include <twinbpf/script.h>

#define ROUNDS 1000

/* Registered by the harness: returns a + b. */
HOST __u64 bench_add(__u64 a, __u64 b);

static long (*loop)(__u32 rounds, void *callback, void *ctx, __u64 flags) = (void *)181;

SEC("syscall") __u64 empty(void)
{
	return 0;
}

SEC("syscall") __u64 host(void)
{
	__u64 i, sum = 0;

	for (i = 0; i < ROUNDS; i++)
		sum = bench_add(sum, i);
	return sum;
}

/* Of libc.so.6; one that the compiler does not know. */
extern long imaxabs(long number) __weak __ksym;

SEC("syscall") __u64 c(void)
{
	__u64 i, sum = 0;

	for (i = 0; i < ROUNDS; i++)
		sum += imaxabs(-i);
	return sum;
}

static __noinline __u64 add(__u64 a, __u64 b)
{
	/* Or clang would put the sum where the call is. */
	asm volatile("" : "+r"(a));
	return a + b;
}

SEC("syscall") __u64 local(void)
{
	__u64 i, sum = 0;

	for (i = 0; i < ROUNDS; i++)
		sum = add(sum, i);
	return sum;
}

static long count(__u64 i, void *ctx)
{
	*(__u64 *)ctx += i;
	return 0;
}

SEC("syscall") __u64 callback(void)
{
	__u64 sum = 0;

	loop(ROUNDS, count, &sum, 0);
	return sum;
}

struct bpf_iter_num {
	__u64 opaque;
};

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __weak __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __weak __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __weak __ksym;

SEC("syscall") __u64 numbers(void)
{
	struct bpf_iter_num it;
	__u64 sum = 0;
	int *i;

	bpf_iter_num_new(&it, 0, ROUNDS);
	while ((i = bpf_iter_num_next(&it)))
		sum += *i;
	bpf_iter_num_destroy(&it);
	return sum;
}

static long (*tail_call)(void *ctx, void *map, __u32 index) = (void *)12;

__u64 tail(void *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__uint(max_entries, 1);
	__array(values, __u64(void *));
} programs SEC(".maps") = {
	.values = { [0] = (void *)&tail },
};

/* A kernel lets no sleepable program make tail calls. */
SEC("tc") __u64 tail(void *ctx)
{
	tail_call(ctx, &programs, 0);
	return 0;
}

__u64 any_tail(void *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__uint(max_entries, 2);
	__array(values, __u64(void *));
} any_programs SEC(".maps") = {
	.values = { [1] = (void *)&any_tail },
};

/* No compiler knows it. */
static volatile __u32 slot = 1;

SEC("tc") __u64 any_tail(void *ctx)
{
	tail_call(ctx, &any_programs, slot);
	return 0;
}

char _license[] SEC("license") = "GPL";

// A congestion control of TCP in BPF: a table of functions (`.struct_ops`) that is registered as long as a session
// lasts. It always sends as much as it did at first.
#include <twinbpf/script.h>

// The members that matter; the kernel's own struct has more, and says where they are.
struct tcp_congestion_ops {
	__u32 (*ssthresh)(void *sk);
	void (*cong_avoid)(void *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(void *sk);
	char name[16];
};

SEC("struct_ops/ssthresh")
__u32 ssthresh(__u64 *ctx)
{
	return 10;
}

SEC("struct_ops/cong_avoid")
void cong_avoid(__u64 *ctx)
{
}

SEC("struct_ops/undo_cwnd")
__u32 undo_cwnd(__u64 *ctx)
{
	return 10;
}

SEC(".struct_ops")
struct tcp_congestion_ops steady = {
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "twinbpf_steady",
};

LICENSE("GPL");

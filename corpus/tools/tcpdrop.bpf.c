// Prints the packets of TCP connections that the kernel drops, and where it does.
//
//     twinbpf run tcpdrop.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/trace.h>

static const char states[16][16] = {
    "",      "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",   "TIME_WAIT",
    "CLOSE", "CLOSE_WAIT",  "LAST_ACK", "LISTEN",   "CLOSING",   "NEW_SYN_RECV"};

void BEGIN(void)
{
	printf("Tracing tcp drops. Hit Ctrl-C to end.\n");
	printf("%-8s %-8s %-16s %-21s %-21s %-8s\n", "TIME", "PID", "COMM", "SADDR:SPORT",
	       "DADDR:DPORT", "STATE");
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped, struct sk_buff *skb, void *location, enum skb_drop_reason reason)
{
	struct sock *sock = skb->sk;

	if (reason <= SKB_DROP_REASON_NOT_SPECIFIED || !sock)
		return 0;
	struct sock_common *ends = &sock->__sk_common;
	u16 family = ends->skc_family;
	if (family != 2 && family != 10) /* AF_INET, AF_INET6 */
		return 0;
	const void *from = family == 2 ? &ends->skc_rcv_saddr : (void *)&ends->skc_v6_rcv_saddr;
	const void *to = family == 2 ? &ends->skc_daddr : (void *)&ends->skc_v6_daddr;
	printf("%s %-8d %-16s ", time_name(nsecs()), pid(), comm());
	printf("%39s:%-6d %39s:%-6d %-10s\n", ntop(family, from), ends->skc_num, ntop(family, to),
	       bpf_ntohs(ends->skc_dport), states[ends->skc_state & 15]);
	printf("%s\n", kstack(ctx));
	return 0;
}

LICENSE("GPL");

// Prints the TCP connections that processes open.
//
//     twinbpf run tcpconnect.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing tcp connections. Hit Ctrl-C to end.\n");
	printf("%-8s %-8s %-16s ", "TIME", "PID", "COMM");
	printf("%-39s %-6s %-39s %-6s\n", "SADDR", "SPORT", "DADDR", "DPORT");
}

SEC("fentry/tcp_connect")
int BPF_PROG(connect, struct sock *sock)
{
	struct sock_common *ends = &sock->__sk_common;
	u16 family = ends->skc_family;
	if (family != 2 && family != 10) /* AF_INET, AF_INET6 */
		return 0;
	const void *from = family == 2 ? &ends->skc_rcv_saddr : (void *)&ends->skc_v6_rcv_saddr;
	const void *to = family == 2 ? &ends->skc_daddr : (void *)&ends->skc_v6_daddr;
	printf("%s %-8d %-16s ", time_name(nsecs()), pid(), comm());
	printf("%-39s %-6d %-39s %-6d\n", ntop(family, from), ends->skc_num, ntop(family, to),
	       bpf_ntohs(ends->skc_dport));
	return 0;
}

LICENSE("GPL");

// Prints the threads that processes start, with their functions.
//
//     twinbpf run threadsnoop.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/trace.h>

void BEGIN(void) { printf("%-10s %-6s %-16s %s\n", "TIME(ms)", "PID", "COMM", "FUNC"); }

SEC("uprobe/libc.so.6:pthread_create")
int BPF_KPROBE(created, void *thread, void *attributes, void *function)
{
	printf("%-10llu %-6d %-16s %s\n", elapsed() / 1000000, pid(), comm(), usym_name(function));
	return 0;
}

LICENSE("GPL");

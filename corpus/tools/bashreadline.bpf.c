// Prints the commands that users enter in bash.
//
//     twinbpf run bashreadline.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/trace.h>

void BEGIN(void)
{
	printf("Tracing bash commands... Hit Ctrl-C to end.\n");
	printf("%-9s %-6s %s\n", "TIME", "PID", "COMMAND");
}

SEC("uretprobe//bin/bash:readline")
int BPF_KRETPROBE(entered, const char *line)
{
	if (line)
		printf("%-9s %-6d %s\n", time_name(nsecs()), pid(), ustr(line));
	return 0;
}

LICENSE("GPL");

// Prints how long processes wait for the addresses of hosts.
//
//     twinbpf run gethostlatency.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/trace.h>

struct lookup {
	u64 began;
	const char *name;
};
MAP_HASH(lookups, u32, struct lookup);

void BEGIN(void)
{
	printf("Tracing getaddr/gethost calls... Hit Ctrl-C to end.\n");
	printf("%-9s %-6s %-16s %6s %s\n", "TIME", "PID", "COMM", "LATms", "HOST");
}

static int done(void)
{
	struct lookup lookup = get(&lookups, tid());

	if (del(&lookups, tid()))
		return 0;
	printf("%-9s %-6d %-16s %6llu %s\n", time_name(nsecs()), pid(), comm(),
	       (nsecs() - lookup.began) / 1000000, ustr(lookup.name));
	return 0;
}

#define TRACE(function)                                                                        \
	SEC("uprobe/libc.so.6:" #function) int BPF_KPROBE(function##_begins, const char *name) \
	{                                                                                      \
		return set(&lookups, tid(), ((struct lookup){nsecs(), name}));                 \
	}                                                                                      \
	SEC("uretprobe/libc.so.6:" #function) int function##_ends(void *ctx) { return done(); }

TRACE(getaddrinfo)
TRACE(gethostbyname)
TRACE(gethostbyname2)

LICENSE("GPL");

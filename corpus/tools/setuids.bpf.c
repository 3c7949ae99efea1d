// Prints the users that processes become with setuid(2), setfsuid(2) and setresuid(2).
//
//     twinbpf run setuids.bpf.c
#include <twinbpf/trace.h>

struct change {
	u32 from, uid, euid, suid;
};
MAP_HASH(changes, u32, struct change);

void BEGIN(void)
{
	printf("Tracing setuid(2) family syscalls. Hit Ctrl-C to end.\n");
	printf("%-8s %-6s %-16s %-6s %-9s %s\n", "TIME", "PID", "COMM", "UID", "SYSCALL",
	       "ARGS (RET)");
}

static int enter(u32 uid, u32 euid, u32 suid)
{
	return set(&changes, tid(), ((struct change){uid(), uid, euid, suid}));
}

SYSCALL(setuid, uid) { return enter(uid, 0, 0); }
SYSCALL(setfsuid, uid) { return enter(uid, 0, 0); }
SYSCALL(setresuid, ruid, euid, suid) { return enter(ruid, euid, suid); }

#define CHANGED(call, fmt, ...)                                                                \
	({                                                                                     \
		struct change change = get(&changes, tid());                                   \
		if (!del(&changes, tid())) {                                                   \
			printf("%s %-6d %-16s %-6d %-9s " fmt "\n", time_name(nsecs()), pid(), \
			       comm(), change.from, call, __VA_ARGS__);                        \
		}                                                                              \
		0;                                                                             \
	})

SYSCALL_RET(setuid, ret) { return CHANGED("setuid", "uid=%d (%ld)", change.uid, ret); }
SYSCALL_RET(setfsuid, ret) { return CHANGED("setfsuid", "uid=%d (prevuid=%ld)", change.uid, ret); }
SYSCALL_RET(setresuid, ret)
{
	return CHANGED("setresuid", "ruid=%d euid=%d suid=%d (%ld)", change.uid, change.euid,
		       change.suid, ret);
}

LICENSE("GPL");

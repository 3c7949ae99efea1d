// Counts calls of the functions of file systems by second.
//
//     twinbpf run vfsstat.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/trace.h>

MAP_COUNT(calls, u64)
DISPLAY("title=VFS calls, columns=function calls, key=ksym, sort=value asc, every=1s, clear, time");

void BEGIN(void) { printf("Tracing key VFS calls... Hit Ctrl-C to end.\n"); }

static int called(void *ctx)
{
	count(&calls, bpf_get_func_ip(ctx));
	return 0;
}

SEC("kprobe/vfs_read*") int reads(void *ctx) { return called(ctx); }
SEC("kprobe/vfs_write*") int writes(void *ctx) { return called(ctx); }
SEC("kprobe/vfs_fsync") int fsync(void *ctx) { return called(ctx); }
SEC("kprobe/vfs_open") int open(void *ctx) { return called(ctx); }
SEC("kprobe/vfs_create") int create(void *ctx) { return called(ctx); }

LICENSE("GPL");

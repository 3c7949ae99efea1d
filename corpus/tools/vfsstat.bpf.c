// Counts calls of the functions of file systems by second.
//
//     twinbpf run vfsstat.bpf.c
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <twinbpf/trace.h>

MAP_COUNT(calls, u64);

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

static int show(const void *function, void *count, void *ctx)
{
	char name[64];

	ksym(*(u64 *)function, name, sizeof(name));
	printf("@[%s]: %llu\n", name, *(u64 *)count);
	return 0;
}

SEC("TIMER/1s")
void every_second(void)
{
	printf("%s\n", time_name(nsecs()));
	map_for_each(&calls, show, NULL, MAP_BY_VALUE | MAP_SUMMED);
	clear(&calls);
}

void END(void) {}

LICENSE("GPL");

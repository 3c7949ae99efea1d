// One attachment for many functions of the kernel.
// build: -D__TARGET_ARCH_x86
#include "seen.h"

struct seen multi, returns;

SEC("kprobe.multi/vfs_rea?")
int BPF_KPROBE(reading, void *file, char *to, unsigned long size)
{
	return saw(&multi, size);
}

SEC("kretprobe.multi/vfs_rea?")
int BPF_KRETPROBE(read_done, long result)
{
	return saw(&returns, result);
}

void END(void)
{
	show("kprobe.multi", &multi);
	show("kretprobe.multi", &returns);
}

LICENSE("GPL");

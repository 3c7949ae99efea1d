// Probes of kernel functions: how often a workload called them, with arguments and results summed up.
// build: -D__TARGET_ARCH_x86
#include "seen.h"

struct seen kprobe, kretprobe, ksyscall, kretsyscall;

SEC("kprobe/vfs_read")
int BPF_KPROBE(reading, void *file, char *to, unsigned long size)
{
	return saw(&kprobe, size);
}

SEC("kretprobe/vfs_read")
int BPF_KRETPROBE(read_done, long result)
{
	return saw(&kretprobe, result);
}

SEC("ksyscall/lseek")
int BPF_KSYSCALL(seeking, unsigned int fd, long offset, unsigned int whence)
{
	return saw(&ksyscall, offset);
}

SEC("kretsyscall/lseek")
int BPF_KRETPROBE(seek_done, long result)
{
	return saw(&kretsyscall, result);
}

void END(void)
{
	show("kprobe", &kprobe);
	show("kretprobe", &kretprobe);
	show("ksyscall", &ksyscall);
	show("kretsyscall", &kretsyscall);
}

LICENSE("GPL");

// What strace sees of a workload, by arguments and results of functions of the kernel and a module.
#include <twinbpf/trace.h>

// vfs_readlink and vfs_readv have no count.
SEC("rd=vfs_re?d* count")
int reads(void *ctx, int err, unsigned long count)
{
	printf("%s read %d %lu\n", comm(), err, count);
	return 0;
}

SEC("rr=vfs_read%return $retval")
int read_returns(void *ctx, int err, long result)
{
	printf("%s read= %d %ld\n", comm(), err, result);
	return 0;
}

// The fourth parameter of vfs_fallocate, the fifth of others.
SEC("le=vfs_*f* len")
int lengths(void *ctx, int err, long len)
{
	printf("%s len %d %ld\n", comm(), err, len);
	return 0;
}

SEC("op=do_sys_openat2 dfd name=filename:ustring flags=how->flags")
int opens(void *ctx, int err, int dfd, const char *name, unsigned long flags)
{
	printf("%s openat %d %d %s %#lx\n", comm(), err, dfd, str(name), flags);
	return 0;
}

SEC("or=do_sys_openat2%return $retval")
int open_returns(void *ctx, int err, long result)
{
	printf("%s openat= %d %ld\n", comm(), err, result);
	return 0;
}

SEC("module=tun;io=tun_chr_ioctl cmd arg")
int requests(void *ctx, int err, unsigned int cmd, unsigned long arg)
{
	printf("%s ioctl %d %#x %#lx\n", comm(), err, cmd, arg);
	return 0;
}

SEC("module=tun;ir=tun_chr_ioctl%return $retval")
int request_returns(void *ctx, int err, long result)
{
	printf("%s ioctl= %d %ld\n", comm(), err, result);
	return 0;
}

LICENSE("GPL");

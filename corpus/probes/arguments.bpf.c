// Functions of the kernel by probe definitions: arguments, their members and results, summed up over a workload.
#include "seen.h"

struct seen reads, device, pattern, results, seeks, opens, mode, folder;

SEC("rd=vfs_read count rdev=file->f_inode->i_rdev")
int reading(void *ctx, int err, unsigned long count, unsigned int rdev)
{
	if (err)
		return 0;
	saw(&device, rdev);
	return saw(&reads, count);
}

// vfs_readlink and vfs_readv have no count.
SEC("pt=vfs_re?d* count")
int reading_all(void *ctx, int err, unsigned long count)
{
	return saw(&pattern, count);
}

SEC("rr=vfs_read%return $retval")
int read_done(void *ctx, int err, long result)
{
	return saw(&results, result);
}

// Of whichever file system the file is on. vfs_llseek is inlined.
SEC("sk=*_file_llseek offset whence")
int seeking(void *ctx, int err, long offset, int whence)
{
	return whence || err ? 0 : saw(&seeks, offset);
}

struct open {
	const char *name;
	unsigned long flags, mode;
	long dfd;
};

SEC("abi=struct;op=do_sys_openat2 name=filename:ustring how->flags how->mode dfd")
int opening(void *ctx, unsigned long failed, struct open *args)
{
	static const char comm[] = "/proc/self/comm";

	if (failed)
		return 0;
	for (unsigned int at = 0; at < sizeof(comm); at++)
		if (args->name[at] != comm[at])
			return 0;
	saw(&opens, args->flags);
	saw(&mode, args->mode);
	return saw(&folder, args->dfd);
}

void END(void)
{
	show("reads", &reads);
	show("device", &device);
	show("pattern", &pattern);
	show("results", &results);
	show("seeks", &seeks);
	show("opens", &opens);
	show("mode", &mode);
	show("folder", &folder);
}

LICENSE("GPL");

// Stands between a program and bpf(2): loads and attachments are not done but written down, so that what two programs
// ask of the kernel can be compared on any machine. For LD_PRELOAD; RECORD names the file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Programs, libraries and stacks lie high in the address space; two numbers side by side do not look like that.
static int is_address(unsigned long long word)
{
	return word >> 32 >= 0x5000 && word >> 32 < 0x8000;
}

// Where the attributes of attachments have descriptors.
static int is_prog_or_target(long cmd, unsigned int at)
{
	return cmd == BPF_LINK_CREATE ? at < 8 : cmd == BPF_RAW_TRACEPOINT_OPEN && at == 8;
}

// Words of the attribute: descriptors and addresses, which differ from run to run, only as what they are.
static void record(long cmd, const void *attr, unsigned int size)
{
	const char *path = getenv("RECORD");
	FILE *file = path ? fopen(path, "a") : NULL;
	unsigned char bytes[256] = {};
	unsigned int at;

	if (!file)
		return;
	memcpy(bytes, attr, size < sizeof(bytes) ? size : sizeof(bytes));
	for (size = sizeof(bytes); size && !bytes[size - 1]; size--)
		;
	fprintf(file, "%ld", cmd);
	for (at = 0; at < size; at += 4) {
		unsigned long long both;
		unsigned int word;

		memcpy(&word, bytes + at, 4);
		memcpy(&both, bytes + at, 8);
		if (at % 8 == 0 && is_address(both)) {
			fprintf(file, " address");
			at += 4;
		} else if (is_prog_or_target(cmd, at) && word > 2 && fcntl(word, F_GETFD) >= 0) {
			fprintf(file, " fd");
		} else if (cmd == BPF_PROG_LOAD && at >= 48 && at < 64) {
			fprintf(file, " %08x", word);
		} else {
			fprintf(file, " %x", word);
		}
	}
	fprintf(file, "\n");
	fclose(file);
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a, b, c, d, e, f;
	va_list list;

	va_start(list, number);
	a = va_arg(list, long);
	b = va_arg(list, long);
	c = va_arg(list, long);
	d = va_arg(list, long);
	e = va_arg(list, long);
	f = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && (a == BPF_PROG_LOAD || a == BPF_LINK_CREATE || a == BPF_RAW_TRACEPOINT_OPEN)) {
		const union bpf_attr *attr = (const void *)b;

		// A question whether there are such links at all.
		if (a == BPF_LINK_CREATE && attr->link_create.target_fd == (unsigned int)-1) {
			errno = EBADF;
			return -1;
		}
		record(a, attr, c);
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "syscall");
	return next(number, a, b, c, d, e, f);
}

// What programs of several kinds saw of one workload, for a line each at the end. Threads of other names are not counted.
#include <linux/bpf.h>
/* Registers by the names of the kernel's own types. */
#define __VMLINUX_H__
struct pt_regs {
	unsigned long di, si, dx, cx, r8, r10, bp, ax, sp, ip;
} __attribute__((preserve_access_index));
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <twinbpf/script.h>

struct seen {
	__u64 calls;
	long long sum;
};

static __always_inline int is_workload(void)
{
	char comm[16] = {};

	bpf_get_current_comm(comm, sizeof(comm));
	return *(__u64 *)comm == *(__u64 *)"workload";
}

static __always_inline int saw(struct seen *seen, long long number)
{
	if (is_workload()) {
		__sync_fetch_and_add(&seen->calls, 1);
		__sync_fetch_and_add(&seen->sum, number);
	}
	return 0;
}

static __always_inline void show(const char *kind, struct seen *seen)
{
	printf("%s %llu %lld\n", kind, seen->calls, seen->sum);
}

// What a script may ask about the machine and itself. The values differ each time, their relations do not.
#include <twinbpf/script.h>

int BEGIN(void)
{
	__u64 before = bpf_ktime_get_ns(), boot = bpf_ktime_get_boot_ns(), coarse = bpf_ktime_get_coarse_ns();
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 a = bpf_get_prandom_u32(), b = bpf_get_prandom_u32(), c = bpf_get_prandom_u32();
	char comm[16] = {};

	printf("time %d %d %d\n", bpf_ktime_get_ns() >= before, boot >= before, coarse > 0);
	printf("tai %d\n", bpf_ktime_get_tai_ns() > 1600000000ULL * 1000000000);
	printf("pid %d %d\n", pid_tgid >> 32 > 0, (__u32)pid_tgid > 0);
	printf("same user %d\n", bpf_get_current_uid_gid() == bpf_get_current_uid_gid());
	printf("comm %ld", bpf_get_current_comm(comm, sizeof(comm)));
	printf(" %d\n", strlen(comm) > 0);
	printf("cpu %d\n", bpf_get_smp_processor_id() < 8192);
	printf("random %d\n", a != b || b != c);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

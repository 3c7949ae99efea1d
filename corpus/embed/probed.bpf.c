// Arguments of functions of the process itself, by definitions in perf's notation. The host says which file.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__u64 steps;
	__s64 first;
	__s64 second;
	__s64 fifth;
	__u64 failed;
	__u64 returns;
	__s64 results;
	__u64 calls;
} seen;

SEC("exec=./libprobed.so;st=step first second fifth=third[4]")
int step_args(void *ctx, int err, long first, long second, long fifth)
{
	__sync_fetch_and_add(&seen.steps, 1);
	__sync_fetch_and_add(&seen.first, first);
	__sync_fetch_and_add(&seen.second, second);
	__sync_fetch_and_add(&seen.fifth, fifth);
	__sync_fetch_and_add(&seen.failed, err);
	return 0;
}

SEC("exec=./libprobed.so;wr=work%return $retval")
int work_result(void *ctx, int err, long result)
{
	__sync_fetch_and_add(&seen.returns, 1);
	__sync_fetch_and_add(&seen.results, result);
	return 0;
}

SEC("uprobe/libprobed.so:run")
int runs(void *ctx)
{
	__sync_fetch_and_add(&seen.calls, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

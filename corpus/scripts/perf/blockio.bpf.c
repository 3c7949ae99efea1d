/* Block I/O by command: requests and bytes, reads and writes; of a recording with -e block:block_rq_issue. */
#include <twinbpf/perf_script.h>

struct trace_event_raw_block_rq_issue {
	char comm[16];
	u32 bytes;
} RECORDED;

struct key {
	char comm[16];
	u64 writes;
};
struct sums {
	u64 bytes, requests;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct key);
	__type(value, struct sums);
	__uint(max_entries, 10240);
} requests SEC(".maps");

SEC("EVENT/block:block_rq_issue") int issue(struct sample *s, u64 size)
{
	const struct trace_event_raw_block_rq_issue *e = s->raw;
	struct sums first = { 0 }, *sums;
	struct key key = { 0 };
	char rwbs[16] = { 0 }; /* it has 8 or 10 bytes, by the kernel */

	sample_field_str("rwbs", rwbs, sizeof(rwbs));
	memcpy(key.comm, e->comm, sizeof(key.comm));
	/* R, W, D (discard) and others, after an F of a flush. */
	for (u32 i = 0; i < sizeof(rwbs); i++)
		key.writes |= rwbs[i] == 'W';
	bpf_map_update_elem(&requests, &key, &first, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&requests, &key);
	if (!sums)
		exit(1);
	sums->bytes += e->bytes;
	sums->requests++;
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	const struct key *of = key;
	const struct sums *sums = value;

	printf("%-16s %-6s %9llu %12llu\n", of->comm, of->writes ? "write" : "read", sums->requests, sums->bytes / 1024);
	return 0;
}

void END(void)
{
	printf("%-16s %-6s %9s %12s\n", "COMMAND", "", "REQUESTS", "KiB");
	map_for_each(&requests, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

// A plugin for examples/embed.rs: counts requests by path in a map of the host's sight, and asks the host for prices.
#include <twinbpf/script.h>

HOST __u64 price(const char *path);
HOST void note(const char *format, ...);

struct request {
	__u32 status;
	__u32 bytes;
	char path[24];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} by_status SEC(".maps");

__u64 total;

int score(const struct request *request)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(&by_status, &request->status);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&by_status, &request->status, &one, BPF_ANY);
	if (request->status >= 500)
		note("%s failed with %d", request->path, request->status);
	__sync_fetch_and_add(&total, price(request->path) * request->bytes);
	return 0;
}

int broken(const struct request *request)
{
	return request->path[request->bytes]; /* beyond its end */
}

LICENSE("GPL");

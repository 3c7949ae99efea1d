/* Page faults by command and range of addresses; of a recording with -d -c 1 -e page-faults. */
#include <twinbpf/perf_script.h>

const volatile u64 range = 2 << 20; /* bytes: --set range=4096 */

struct place {
	u64 start;
	char comm[16];
	char file[64];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct place);
	__type(value, u64);
	__uint(max_entries, 10240);
} faults SEC(".maps");

int EVENT(struct sample *s, u64 size)
{
	struct place place = { .start = s->addr / range * range };
	u64 none = 0, *count;

	memcpy(place.comm, s->comm, sizeof(place.comm));
	sample_dso(s->addr, place.file, sizeof(place.file));
	bpf_map_update_elem(&faults, &place, &none, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&faults, &place);
	if (!count)
		exit(1);
	++*count;
	return 1;
}

static int row(const void *key, void *value, void *ctx)
{
	const struct place *place = key;

	printf("%-16s %18llx %8llu %s\n", place->comm, place->start, *(u64 *)value, place->file);
	return 0;
}

void END(void)
{
	printf("%-16s %18s %8s %s\n", "COMMAND", "FROM", "FAULTS", "FILE");
	map_for_each(&faults, row, NULL, MAP_BY_VALUE | MAP_DESCENDING);
}

LICENSE("GPL");

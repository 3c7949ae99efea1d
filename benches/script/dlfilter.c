/* The questions of `benches/script.rs`, as filters of perf in C: -DCOUNT, -DHISTOGRAM, -DSTACKS. */
#include <perf/perf_dlfilter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct perf_dlfilter_fns perf_dlfilter_fns;

#define ENTRIES (1 << 16)
#define KEY	1000

struct entry {
	char key[KEY];
	uint64_t count;
};
static struct entry *entries[ENTRIES];

static void add(const char *key)
{
	uint64_t hash = 14695981039346656037u;
	struct entry **at;

	for (const char *c = key; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	for (at = &entries[hash % ENTRIES]; *at; at = at == &entries[ENTRIES - 1] ? entries : at + 1)
		if (!strcmp((*at)->key, key)) {
			(*at)->count++;
			return;
		}
	*at = calloc(1, sizeof(**at));
	strcpy((*at)->key, key);
	(*at)->count = 1;
}

static uint64_t slots[65];

int filter_event(void *data, const struct perf_dlfilter_sample *sample, void *ctx)
{
#if defined(COUNT)
	const struct perf_dlfilter_al *al = perf_dlfilter_fns.resolve_ip(ctx);

	add(al && al->comm ? al->comm : "");
#elif defined(HISTOGRAM)
	int64_t id;

	memcpy(&id, (const char *)sample->raw_data + 8, sizeof(id));
	slots[id > 0 ? 64 - __builtin_clzll(id) : 0]++;
#else
	const struct perf_dlfilter_al *thread = perf_dlfilter_fns.resolve_ip(ctx);
	char key[KEY];
	unsigned long length = snprintf(key, sizeof(key), "%s;", thread && thread->comm ? thread->comm : "");
	const char *between = "";

	for (uint64_t i = sample->raw_callchain_nr; i-- > 0 && length < sizeof(key);) {
		uint64_t address = sample->raw_callchain[i];
		struct perf_dlfilter_al al = { .size = sizeof(al) };

		if (address >= (uint64_t)-4095)
			continue;
		if (!perf_dlfilter_fns.resolve_address(ctx, address, &al) && al.sym)
			length += snprintf(key + length, sizeof(key) - length, "%s%s", between, al.sym);
		else
			length += snprintf(key + length, sizeof(key) - length, "%s0x%lx", between, (unsigned long)address);
		between = ";";
	}
	add(key);
#endif
	return 1;
}

int stop(void *data, void *ctx)
{
	for (unsigned int i = 0; i < ENTRIES; i++)
		if (entries[i])
			printf("%s %lu\n", entries[i]->key, entries[i]->count);
	for (unsigned int i = 0; i < 65; i++)
		if (slots[i])
			printf("%u %lu\n", i, slots[i]);
	return 0;
}

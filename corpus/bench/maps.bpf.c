// A program for each map kind and operation, 1,000 operations a run, keys in an order that jumps about. A program
// returns how many operations failed: 0.
#include <twinbpf/script.h>

#define ROUNDS 1000
#define ENTRIES 1024
#define MAP(name, kind, flags)                                                                                     \
	struct {                                                                                                   \
		__uint(type, BPF_MAP_TYPE_##kind);                                                                 \
		__type(key, __u32);                                                                                \
		__type(value, __u64);                                                                              \
		__uint(max_entries, ENTRIES);                                                                      \
		__uint(map_flags, flags);                                                                          \
	} name SEC(".maps")

static long (*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*delete)(void *map, const void *key) = (void *)3;
static long (*push)(void *map, const void *value, __u64 flags) = (void *)87;
static long (*pop)(void *map, void *value) = (void *)88;
static long (*peek)(void *map, void *value) = (void *)89;
static long (*ringbuf_output)(void *map, const void *data, __u64 size, __u64 flags) = (void *)130;
static void *(*ringbuf_reserve)(void *map, __u64 size, __u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*for_each)(void *map, void *callback, void *ctx, __u64 flags) = (void *)164;

#define LOOKUP(map)                                                                                                \
	SEC("syscall") long map##_lookup(void)                                                                      \
	{                                                                                                          \
		__u32 i, key;                                                                                      \
		long failed = 0;                                                                                   \
		__u64 *value;                                                                                      \
                                                                                                                   \
		for (i = 0; i < ROUNDS; i++) {                                                                     \
			key = i * 7 & (ENTRIES - 1);                                                               \
			value = (__u64 *)lookup(&map, &key);                                                       \
			if (value)                                                                                 \
				*value += 1;                                                                       \
			else                                                                                       \
				failed++;                                                                          \
		}                                                                                                  \
		return failed;                                                                                     \
	}
#define UPDATE(map)                                                                                                \
	SEC("syscall") long map##_update(void)                                                                      \
	{                                                                                                          \
		__u32 i, key;                                                                                      \
		long failed = 0;                                                                                   \
		__u64 value;                                                                                       \
                                                                                                                   \
		for (i = 0; i < ROUNDS; i++) {                                                                     \
			key = i * 7 & (ENTRIES - 1);                                                               \
			value = i;                                                                                 \
			failed += update(&map, &key, &value, BPF_ANY) != 0;                                        \
		}                                                                                                  \
		return failed;                                                                                     \
	}
/* Takes an entry out and puts it back. */
#define RENEW(map)                                                                                                 \
	SEC("syscall") long map##_renew(void)                                                                       \
	{                                                                                                          \
		__u32 i, key;                                                                                      \
		long failed = 0;                                                                                   \
		__u64 value;                                                                                       \
                                                                                                                   \
		for (i = 0; i < ROUNDS / 2; i++) {                                                                 \
			key = i * 7 & (ENTRIES - 1);                                                               \
			value = i;                                                                                 \
			failed += delete (&map, &key) != 0;                                                        \
			failed += update(&map, &key, &value, BPF_NOEXIST) != 0;                                    \
		}                                                                                                  \
		return failed;                                                                                     \
	}
/* Fills the map, so that look-ups hit. Runs before any measurement. */
#define FILL(map)                                                                                                  \
	do {                                                                                                       \
		for (i = 0; i < ENTRIES; i++) {                                                                    \
			number = value = i;                                                                        \
			failed += update(&map, &number, &value, BPF_ANY) != 0;                                     \
		}                                                                                                  \
	} while (0)

MAP(array, ARRAY, 0);
MAP(hash, HASH, 0);
MAP(percpu_array, PERCPU_ARRAY, 0);
MAP(percpu_hash, PERCPU_HASH, 0);
MAP(lru_hash, LRU_HASH, 0);

struct prefix {
	__u32 bits, address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} lpm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} stack SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} bloom SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} ring SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} red SEC(".maps"), blue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 2);
	__array(values, struct inner);
} array_of_maps SEC(".maps") = {
	.values = { &red, &blue },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 2);
	__array(values, struct inner);
} hash_of_maps SEC(".maps") = {
	.values = { &red, &blue },
};

SEC("syscall") long fill(void)
{
	long failed = 0;
	__u32 i, number;
	__u64 value;

	FILL(array);
	FILL(hash);
	FILL(percpu_array);
	FILL(percpu_hash);
	FILL(lru_hash);
	for (i = 0; i < ENTRIES; i++) {
		struct prefix key = { .bits = 32, .address = i };

		value = i;
		failed += update(&lpm, &key, &value, BPF_ANY) != 0;
		failed += push(&bloom, &value, 0) != 0;
	}
	return failed;
}

LOOKUP(array)
LOOKUP(hash)
LOOKUP(percpu_array)
LOOKUP(percpu_hash)
UPDATE(array)
UPDATE(hash)
UPDATE(percpu_array)
UPDATE(percpu_hash)
RENEW(hash)
RENEW(percpu_hash)

static long count_down(void *map, const void *key, __u64 *value, __u64 *left)
{
	*value += *(const __u32 *)key;
	return --*left == 0;
}

/* No constant: a verifier that knew it would go through all the rounds. */
static volatile __u64 rounds = ROUNDS;

/* Calls back for as many elements as other programs have operations. */
#define WALK(map)                                                                                                  \
	SEC("syscall") long map##_walk(void)                                                                        \
	{                                                                                                          \
		__u64 left = rounds;                                                                               \
                                                                                                                   \
		for_each(&map, count_down, &left, 0);                                                              \
		return left;                                                                                       \
	}

WALK(array)
WALK(hash)
WALK(percpu_array)
WALK(percpu_hash)

/* What the least recently used map evicts is its own affair: an entry that is gone comes back and is no failure. */
SEC("syscall") long lru_hash_lookup(void)
{
	long failed = 0;
	__u64 *value;
	__u32 i, key;

	for (i = 0; i < ROUNDS; i++) {
		__u64 fresh = i;

		key = i * 7 & (ENTRIES - 1);
		value = (__u64 *)lookup(&lru_hash, &key);
		if (value)
			*value += 1;
		else
			failed += update(&lru_hash, &key, &fresh, BPF_ANY) != 0;
	}
	return failed;
}

UPDATE(lru_hash)

/* Likewise: an entry that is gone needs no delete. */
SEC("syscall") long lru_hash_renew(void)
{
	long failed = 0;
	__u64 value;
	__u32 i, key;

	for (i = 0; i < ROUNDS / 2; i++) {
		key = i * 7 & (ENTRIES - 1);
		value = i;
		delete (&lru_hash, &key);
		failed += update(&lru_hash, &key, &value, BPF_ANY) != 0;
	}
	return failed;
}

SEC("syscall") long lpm_lookup(void)
{
	struct prefix key = { .bits = 32 };
	long failed = 0;
	__u32 i;

	for (i = 0; i < ROUNDS; i++) {
		key.address = i * 7 & (ENTRIES - 1);
		failed += !lookup(&lpm, &key);
	}
	return failed;
}

SEC("syscall") long lpm_update(void)
{
	struct prefix key = { .bits = 32 };
	long failed = 0;
	__u64 value;
	__u32 i;

	for (i = 0; i < ROUNDS; i++) {
		key.address = i * 7 & (ENTRIES - 1);
		value = i;
		failed += update(&lpm, &key, &value, BPF_ANY) != 0;
	}
	return failed;
}

SEC("syscall") long lpm_renew(void)
{
	struct prefix key = { .bits = 32 };
	long failed = 0;
	__u64 value;
	__u32 i;

	for (i = 0; i < ROUNDS / 2; i++) {
		key.address = i * 7 & (ENTRIES - 1);
		value = i;
		failed += delete (&lpm, &key) != 0;
		failed += update(&lpm, &key, &value, BPF_NOEXIST) != 0;
	}
	return failed;
}

/* Finds one of two maps, and a value in it. */
#define LOOKUP_IN(outer)                                                                                           \
	SEC("syscall") long outer##_lookup(void)                                                                    \
	{                                                                                                          \
		__u32 i, key;                                                                                      \
		long failed = 0;                                                                                   \
		__u64 *value;                                                                                      \
		void *inner;                                                                                       \
                                                                                                                   \
		for (i = 0; i < ROUNDS; i++) {                                                                     \
			key = i & 1;                                                                               \
			inner = (void *)lookup(&outer, &key);                                                      \
			if (!inner) {                                                                              \
				failed++;                                                                          \
				continue;                                                                          \
			}                                                                                          \
			key = i * 7 & (ENTRIES - 1);                                                               \
			value = (__u64 *)lookup(inner, &key);                                                      \
			if (value)                                                                                 \
				*value += 1;                                                                       \
			else                                                                                       \
				failed++;                                                                          \
		}                                                                                                  \
		return failed;                                                                                     \
	}

LOOKUP_IN(array_of_maps)
LOOKUP_IN(hash_of_maps)

#define PUSH_POP(map)                                                                                              \
	SEC("syscall") long map##_push_pop(void)                                                                    \
	{                                                                                                          \
		long failed = 0;                                                                                   \
		__u64 value;                                                                                       \
		__u32 i;                                                                                           \
                                                                                                                   \
		for (i = 0; i < ROUNDS / 2; i++) {                                                                 \
			value = i;                                                                                 \
			failed += push(&map, &value, 0) != 0;                                                      \
			failed += pop(&map, &value) != 0;                                                          \
		}                                                                                                  \
		return failed;                                                                                     \
	}

PUSH_POP(queue)
PUSH_POP(stack)

SEC("syscall") long bloom_peek(void)
{
	long failed = 0;
	__u64 value;
	__u32 i;

	for (i = 0; i < ROUNDS; i++) {
		value = i;
		failed += peek(&bloom, &value) != 0;
	}
	return failed;
}

/* The harness empties the buffer between runs. */
SEC("syscall") long ring_output(void)
{
	long failed = 0;
	__u64 record[2];
	__u32 i;

	for (i = 0; i < ROUNDS; i++) {
		record[0] = record[1] = i;
		failed += ringbuf_output(&ring, record, sizeof(record), 0) != 0;
	}
	return failed;
}

SEC("syscall") long ring_reserve(void)
{
	long failed = 0;
	__u64 *record;
	__u32 i;

	for (i = 0; i < ROUNDS; i++) {
		record = ringbuf_reserve(&ring, 2 * sizeof(*record), 0);
		if (!record) {
			failed++;
			continue;
		}
		record[0] = record[1] = i;
		ringbuf_submit(record, 0);
	}
	return failed;
}

// Maps with a million entries: programs that fill them, and that look them up at random. A program returns how many
// operations failed: 0.
#include <twinbpf/script.h>

#define ENTRIES (1 << 20)
/* Operations of a run. */
#define ROUNDS 4096

static long (*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;

/* 32 bits of a number, spread so that no two numbers have the same. */
static __always_inline __u32 spread(__u32 number)
{
	number *= 0x9e3779b1;
	number ^= number >> 15;
	return number * 0x85ebca77;
}

struct prefix {
	__u32 bits, address;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
} lru_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct prefix);
	__type(value, __u64);
	__uint(max_entries, ENTRIES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} lpm SEC(".maps");

/* The next run goes on where this one ends. */
__u32 next;

/* The same numbers in order, and in one that jumps about. */
#define NEXT (next++ & (ENTRIES - 1))
#define ANY (next++ * 0x5851f42d & (ENTRIES - 1))
#define HASHED(name, number) __u32 name = spread(number)
#define PREFIX(name, number) struct prefix name = { 32, spread(number) }
#define FILL(map, KEY)                                                                                             \
	SEC("syscall") long map##_fill(void)                                                                        \
	{                                                                                                          \
		long failed = 0;                                                                                   \
		__u32 i;                                                                                           \
                                                                                                                   \
		for (i = 0; i < ROUNDS; i++) {                                                                     \
			KEY(key, NEXT);                                                                            \
			__u64 value = i;                                                                           \
                                                                                                                   \
			failed += update(&map, &key, &value, BPF_ANY) != 0;                                        \
		}                                                                                                  \
		return failed;                                                                                     \
	}
/* LRU maps may have let go of entries: `missing` says whether that is a failure. */
#define LOOKUP(map, KEY, missing)                                                                                  \
	SEC("syscall") long map##_lookup(void)                                                                      \
	{                                                                                                          \
		long failed = 0;                                                                                   \
		__u32 i;                                                                                           \
                                                                                                                   \
		for (i = 0; i < ROUNDS; i++) {                                                                     \
			KEY(key, ANY);                                                                             \
			failed += lookup(&map, &key) ? 0 : missing;                                                \
		}                                                                                                  \
		return failed;                                                                                     \
	}

FILL(hash, HASHED)
FILL(lru_hash, HASHED)
FILL(lpm, PREFIX)
LOOKUP(hash, HASHED, 1)
LOOKUP(lru_hash, HASHED, 0)
LOOKUP(lpm, PREFIX, 1)

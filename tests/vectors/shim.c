/* The parts of the kernel that the table of lib/test_bpf.c leans on, for a program in userspace that writes it out. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <netinet/in.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#undef __BIG_ENDIAN
#define S16_MAX INT16_MAX
#define S16_MIN INT16_MIN
#define S32_MAX INT32_MAX
#define S32_MIN INT32_MIN
#define S64_MAX INT64_MAX
#define S64_MIN INT64_MIN
#define U8_MAX UINT8_MAX
#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX
#define BIT(n) (1u << (n))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define BUG_ON(broken) do { if (broken) abort(); } while (0)
#define GFP_KERNEL 0
#define kmalloc_array(n, size, flags) calloc(n, size)
#define __init
#define div64_u64(a, b) ((u64)(a) / (u64)(b))
#define cpu_to_le16(x) ((u16)(x))
#define cpu_to_le32(x) ((u32)(x))
#define cpu_to_le64(x) ((u64)(x))
#define cpu_to_be16(x) __builtin_bswap16(x)
#define cpu_to_be32(x) __builtin_bswap32(x)
#define cpu_to_be64(x) __builtin_bswap64(x)

static inline u64 div64_u64_rem(u64 a, u64 b, u64 *rest)
{
	*rest = a % b;
	return a / b;
}

/* Any sequence will do: what programs compute is computed beside them. */
struct rnd_state { u64 state; };

static inline void prandom_seed_state(struct rnd_state *rnd, u64 seed)
{
	rnd->state = seed | 1;
}

static inline u32 prandom_u32_state(struct rnd_state *rnd)
{
	rnd->state = rnd->state * 6364136223846793005ull + 1442695040888963407ull;
	return rnd->state >> 32;
}

#include "macros.h"
#include "table.h"

static void put(const void *bytes, size_t size)
{
	if (fwrite(bytes, 1, size, stdout) != size)
		exit(1);
}

static void put32(u32 number)
{
	put(&number, sizeof(number));
}

/* Name, flags, runs, instructions; each list behind its length. */
int main(void)
{
	for (size_t at = 0; at < ARRAY_SIZE(tests); at++) {
		struct bpf_test *test = &tests[at];
		u32 runs = 1, len = MAX_INSNS;
		const struct bpf_insn *insns = test->u.insns_int;

		if (!(test->aux & INTERNAL))
			continue;
		if (test->fill_helper) {
			if (test->fill_helper(test))
				return 1;
			insns = test->u.ptr.insns;
			len = test->u.ptr.len;
		} else {
			while (len > 1 && !insns[len - 1].code && !insns[len - 1].imm)
				len--;
		}
		while (runs < MAX_SUBTESTS && (test->test[runs].data_size || test->test[runs].result))
			runs++;
		put32(strlen(test->descr));
		put(test->descr, strlen(test->descr));
		put32(test->aux);
		put32(runs);
		for (u32 run = 0; run < runs; run++) {
			put32(test->test[run].data_size);
			put32(test->test[run].result);
		}
		put32(len);
		put(insns, (size_t)len * sizeof(*insns));
		if (test->fill_helper)
			free(test->u.ptr.insns);
	}
	return 0;
}

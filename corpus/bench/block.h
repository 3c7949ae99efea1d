/*
 * What every kernel works on: one block of memory, passed as the context.
 *
 * The harness fills `input` and says in `len` how much work there is; the unit is the kernel's. A kernel reads
 * `scratch` only where it wrote before, so each run of a block gives the same result. Nothing here needs a
 * relocation, a call or the stack of another function: machines that only take bare code run it too.
 */
#ifndef BLOCK_H
#define BLOCK_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define AREA 65536

struct block {
	u64 len;
	u64 unused[7];
	union {
		u8 input[AREA];
		u16 input16[AREA / 2];
		u32 input32[AREA / 4];
		u64 input64[AREA / 8];
	};
	union {
		u8 scratch[AREA];
		u32 scratch32[AREA / 4];
		u64 scratch64[AREA / 8];
	};
};

/* A kernel is a program of type "syscall": any machine hands it its context as it is. */
#define KERNEL __attribute__((section("syscall"), used))

static inline __attribute__((always_inline)) u64 rotl64(u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static inline __attribute__((always_inline)) u32 rotl32(u32 x, int n)
{
	return x << n | x >> (32 - n);
}

static inline __attribute__((always_inline)) u32 rotr32(u32 x, int n)
{
	return x >> n | x << (32 - n);
}

#endif

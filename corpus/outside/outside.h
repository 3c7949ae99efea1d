/*
 * What the workloads of this folder share: the block, and the functions of the C library that ordinary code calls.
 *
 * They are written from public specifications as ordinary C, without regard to any compiler for BPF. The block is that
 * of bench/: `input` is read only, and `scratch` is read only where the same run has written.
 */
#ifndef OUTSIDE_H
#define OUTSIDE_H

#include "../bench/block.h"

#define WORKLOAD KERNEL

typedef signed char s8;
typedef short s16;
typedef int s32;
typedef unsigned long size_t;

#define NULL ((void *)0)
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* BPF and the scalar native baseline have no C library; plain native code has. */
#if defined(__bpf__) || !__STDC_HOSTED__
static inline void *memcpy(void *to, const void *from, size_t n)
{
	u8 *d = to;
	const u8 *s = from;

	while (n--)
		*d++ = *s++;
	return to;
}

static inline void *memset(void *to, int byte, size_t n)
{
	u8 *d = to;

	while (n--)
		*d++ = byte;
	return to;
}

static inline int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;

	for (; n--; x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}
#else
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
#endif

static inline u32 load_le32(const u8 *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24;
}

static inline u64 load_le64(const u8 *p)
{
	return load_le32(p) | (u64)load_le32(p + 4) << 32;
}

static inline u32 load_be32(const u8 *p)
{
	return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static inline u64 load_be64(const u8 *p)
{
	return (u64)load_be32(p) << 32 | load_be32(p + 4);
}

static inline u32 load_be16(const u8 *p)
{
	return p[0] << 8 | p[1];
}

static inline void store_le32(u8 *p, u32 x)
{
	p[0] = x;
	p[1] = x >> 8;
	p[2] = x >> 16;
	p[3] = x >> 24;
}

static inline void store_be32(u8 *p, u32 x)
{
	p[0] = x >> 24;
	p[1] = x >> 16;
	p[2] = x >> 8;
	p[3] = x;
}

/* Folds bytes into a number, for results that are long. */
static inline u64 digest(const void *from, size_t n)
{
	const u8 *p = from;
	u64 hash = 0xcbf29ce484222325;

	while (n--)
		hash = (hash ^ *p++) * 0x100000001b3;
	return hash;
}

#endif

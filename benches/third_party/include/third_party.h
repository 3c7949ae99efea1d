/*
 * What the wrappers of third-party C share: the block of corpus/bench/block.h with the types of <stdint.h>, and the part of the C
 * library that such code calls. BPF and the scalar native baseline have no C library; plain native code has.
 */
#ifndef THIRD_PARTY_H
#define THIRD_PARTY_H

#include <stddef.h>
#include <stdint.h>

#define AREA 65536

struct block {
	uint64_t len;
	uint64_t unused[7];
	uint8_t input[AREA];
	uint8_t scratch[AREA];
};

#define WORKLOAD __attribute__((section("syscall"), used, visibility("default")))

#if defined(__bpf__) || !__STDC_HOSTED__
static inline void *third_party_memcpy(void *to, const void *from, size_t n)
{
	uint8_t *d = to;
	const uint8_t *s = from;

	while (n--)
		*d++ = *s++;
	return to;
}

static inline void *third_party_memmove(void *to, const void *from, size_t n)
{
	uint8_t *d = to;
	const uint8_t *s = from;

	if (d <= s)
		return third_party_memcpy(to, from, n);
	while (n--)
		d[n] = s[n];
	return to;
}

static inline void *third_party_memset(void *to, int byte, size_t n)
{
	uint8_t *d = to;

	while (n--)
		*d++ = byte;
	return to;
}

static inline int memcmp(const void *a, const void *b, size_t n)
{
	const uint8_t *x = a, *y = b;

	for (; n--; x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

static inline size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

/* Short copies of a known size are for the compiler, as in BPF programs. */
#define SHORT(n) (__builtin_constant_p(n) && (n) <= 64)
#define memcpy(to, from, n) (SHORT(n) ? __builtin_memcpy(to, from, SHORT(n) ? (n) : 0) : third_party_memcpy(to, from, n))
#define memmove(to, from, n) third_party_memmove(to, from, n)
#define memset(to, byte, n) (SHORT(n) ? __builtin_memset(to, byte, SHORT(n) ? (n) : 0) : third_party_memset(to, byte, n))
#else
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
#endif

/* Memory that each run takes from the start again. */
static uint8_t heap[1 << 21] __attribute__((aligned(16)));
static size_t heap_used;

static inline void *malloc(size_t n)
{
	void *p = heap + heap_used;

	n = (n + 15) & ~(size_t)15;
	if (n > sizeof(heap) - heap_used)
		return NULL;
	heap_used += n;
	return p;
}

static inline void *calloc(size_t n, size_t size)
{
	void *p = malloc(n * size);

	return p ? memset(p, 0, n * size) : NULL;
}

static inline void free(void *p)
{
	(void)p;
}

static inline void free_all(void)
{
	heap_used = 0;
}

static inline void abort(void)
{
	for (;;)
		;
}

/* Folds bytes into a number. */
static inline uint64_t digest(const void *from, size_t n)
{
	const uint8_t *p = from;
	uint64_t hash = 0xcbf29ce484222325;

	while (n--)
		hash = (hash ^ *p++) * 0x100000001b3;
	return hash;
}

/* Foreign functions that nothing calls go, and those of one caller become part of it. */
#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)
#define THIRD_PARTY_END _Pragma("clang attribute pop")

#endif

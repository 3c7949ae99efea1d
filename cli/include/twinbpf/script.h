/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a twinbpf script includes.
 *
 * A script is one C file with programs for the kernel and programs for userspace. BEGIN and END are plain
 * functions; twinbpf runs them in its virtual machine, where a call of an undefined function goes to the host by
 * its name:
 *
 *     #include <twinbpf/script.h>
 *
 *     int BEGIN(void)
 *     {
 *             printf("hello from %s, %d\n", "BEGIN", 42);
 *             return 0;               // below 0 aborts the run, END is then not called
 *     }
 *
 *     void END(void)
 *     {
 *             printf("bye\n");
 *     }
 *
 *     LICENSE("GPL");
 *
 * Build it with
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -I include -c hello.bpf.c -o hello.bpf.o
 *
 * `-g` is needed: it writes the types (BTF) by which arguments are passed and maps are understood. Scripts that call the
 * C library's mathematics want `-fno-builtin` too, or clang replaces pow(x, -1) by a division it cannot compile.
 *
 * Every host function below is declared `__ksym __weak`. Stock libbpf and bpftool then load the same object: to them
 * a function the kernel does not have is merely absent, and BEGIN and END are functions nobody calls. (An object whose
 * only function at all is BEGIN they take for a program of unknown type; give it an END.)
 *
 * The header works alone, after "vmlinux.h", after <linux/bpf.h>, and with <bpf/bpf_helpers.h>. Include it last.
 *
 * In C++ (17 and later) entry points are `extern "C"`, and clang++ wants `-fno-exceptions -fno-rtti`.
 */
#ifndef TWINBPF_SCRIPT_H
#define TWINBPF_SCRIPT_H

/* ---- Types ------------------------------------------------------------------------------------------------- */

/* Saying the same typedef twice is fine in C11, so these need no guard against the kernel's headers. */
typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;

typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;

#if !defined(__VMLINUX_H__) && !defined(bool) && !defined(__cplusplus) && __STDC_VERSION__ < 202311L
typedef _Bool bool;
enum { false = 0, true = 1 };
#endif

#ifndef NULL
#define NULL ((void *)0)
#endif

#if !defined(__VMLINUX_H__) && !defined(__LINUX_BPF_H__)
/* Numbers of the kernel's enum bpf_map_type, for the `type` of a map definition. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LRU_PERCPU_HASH = 10,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_CPUMAP = 16,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_BLOOM_FILTER = 30,
};

/* Flags of updates and of map creation. */
enum {
	BPF_ANY = 0,     /* create or overwrite */
	BPF_NOEXIST = 1, /* only create */
	BPF_EXIST = 2,   /* only overwrite */
	BPF_F_LOCK = 4,
};
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
};

/* A lock inside a map value. */
struct bpf_spin_lock {
	__u32 val;
};
#endif

/* ---- Sections and map definitions -------------------------------------------------------------------------- */

/* Puts a function or variable into an ELF section and keeps it even if nothing refers to it. */
#ifndef SEC
#if defined(__cplusplus) && !defined(__clang__) /* g++ takes no pragma there */
#define SEC(name) __attribute__((section(name), used))
#else
#define SEC(name)                                                                                                  \
	_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wignored-attributes\"")                  \
	__attribute__((section(name), used)) _Pragma("GCC diagnostic pop")
#endif
#endif

/* Members of a map definition: numbers and types are kept in BTF, the variable holds no data.
 *
 *     struct {
 *             __uint(type, BPF_MAP_TYPE_HASH);
 *             __type(key, __u32);
 *             __type(value, __u64);
 *             __uint(max_entries, 1024);
 *     } counts SEC(".maps");
 */
#ifndef __uint
#define __uint(name, val) int (*name)[val]
#endif
#ifndef __type
#define __type(name, val) __typeof__(val) *name
#endif
#ifndef __array
#define __array(name, val) __typeof__(val) *name[]
#endif
#define __twin_join2(a, b) a##b
#define __twin_join(a, b) __twin_join2(a, b)
#ifndef __ulong
/* A number of 64 bits. */
#define __ulong(name, val) enum { __twin_join(__unique_value_, __COUNTER__) = val } name
#endif

/*
 * How a map is printed at the end, or every interval, without an END that does so: settings of docs/display.md, after the
 * definition of the map or, for one that is defined elsewhere, in a line of the section "config".
 *
 *     } sizes SEC(".maps") DISPLAY("title=Bytes by process, unit=bytes, top=10");
 *     DISPLAY_MAP(calls, "sort=key asc, every=1s, clear");
 */
#define DISPLAY(settings) __attribute__((btf_decl_tag("display:" settings)))
#define DISPLAY_MAP(map, settings)                                                                                 \
	static const char __twin_join(__twin_display_, map)[]                                                      \
		__attribute__((section("config"), used)) = #map ": " settings

/* Looked up outside the object: in the host here, among the kernel's symbols there. */
#ifndef __ksym
#define __ksym __attribute__((section(".ksyms")))
#endif
#ifndef __weak
#define __weak __attribute__((weak))
#endif
#ifndef __hidden
#define __hidden __attribute__((visibility("hidden")))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* A function of the host. Weak: an object that never gets it still loads, and may ask `if (name)`. */
#ifdef __cplusplus
#define HOST extern "C" __weak __ksym
#else
#define HOST extern __weak __ksym
#endif

/* The licence the kernel wants to know before it lends GPL-only helpers. */
#define LICENSE(text) char _license[] SEC("license") = text

/* ---- Host functions: output and control -------------------------------------------------------------------- */

/* The C function, with every flag, width, precision, length and conversion but %n. Use the macros below: they also
 * take more than four values and values of any scalar type. */
HOST int printf(const char *fmt, ...);
HOST int puts(const char *line);
HOST int putchar(int c);
HOST int print(const char *fmt, ...);
HOST int snprintf(char *buf, __SIZE_TYPE__ size, const char *fmt, ...);

/* The same under names that clang does not take for its own: it would turn printf("x\n") into puts("x"). */
HOST int twinbpf_printf(const char *fmt, ...);
HOST int twinbpf_snprintf(char *buf, __u64 size, const char *fmt, ...);
/* For <twinbpf/trace.h>: a record of the session's output, or NULL. The session puts the ring buffer in place of the first
 * argument. */
HOST void *twinbpf_reserve(void *unused, __u64 size, __u64 flags);
/* Values in an array, 64 bits each; a double as its bits. */
HOST int twinbpf_printfv(const char *fmt, const __u64 *values, __u32 count);
HOST int twinbpf_snprintfv(char *buf, __u64 size, const char *fmt, const __u64 *values, __u32 count);

/* Ends the run with this status; does not return. clang knows that of the C `exit` and would leave the function
 * without an end behind the call, which no verifier likes, hence the other name. */
HOST void twinbpf_exit(int status);
#define exit twinbpf_exit

/* ---- Host functions: the session --------------------------------------------------------------------------- */

#define set_timer twinbpf_set_timer
#define workload_pid twinbpf_workload_pid

/* From now on TIMER is called each time so many nanoseconds have passed; never for 0. TIMER programs of a section that says
 * how often (SEC("TIMER/100ms")) keep to that. */
HOST void set_timer(__u64 nanoseconds);
/* Process id of the workload, which waits until BEGIN is over; 0 without a workload. */
HOST __u32 workload_pid(void);

/* Runs a command with the shell; its status, or 128 and the signal that ended it. Needs `--unsafe`. */
HOST int twinbpf_system(const char *command);
#define system twinbpf_system

/* ---- Host functions: addresses and other processes --------------------------------------------------------- */

/* Writes the name of the function around an address, or the address in hex, as snprintf would: cut to `size` bytes with the
 * NUL, and the whole length as result. usym: in a process; ksym: in the kernel. sym is usym. */
HOST int usym(__u32 pid, __u64 addr, char *buf, __u64 size);
HOST int sym(__u32 pid, __u64 addr, char *buf, __u64 size);
HOST int ksym(__u64 addr, char *buf, __u64 size);

/* Names of an errno value (also negative, as system calls return it), a signal, a system call, an address of the kernel, the
 * local time HH:MM:SS of nanoseconds since boot, and the path of a cgroup of version 2. The number where there is none.
 * enum_name(enum type, value) is the name of a constant. The string lasts until the program returns. */
HOST const char *twinbpf_errno_name(long number);
HOST const char *twinbpf_signal_name(long number);
HOST const char *twinbpf_syscall_name(long number);
HOST const char *twinbpf_ksym_name(__u64 address);
HOST const char *twinbpf_time_name(__u64 nanoseconds);
HOST const char *twinbpf_cgroup_path(__u64 id);
HOST const char *twinbpf_enum_name(__u64 type_and_value);
#define errno_name twinbpf_errno_name
#define signal_name twinbpf_signal_name
#define syscall_name twinbpf_syscall_name
#define ksym_name twinbpf_ksym_name
#define time_name twinbpf_time_name
/* The object's number of the type, and the value. */
#define __twin_enumerator(type, value) ((__u64)__builtin_btf_type_id(*(__typeof__(type) *)0, 0) << 32 | (__u32)(value))
#ifndef TWINBPF_PLAIN
#define cgroup_path twinbpf_cgroup_path
#define enum_name(type, value) twinbpf_enum_name(__twin_enumerator(type, value))
#endif

/* Prints the stack that bpf_get_stackid put into a STACK_TRACE map, a frame a line. The number of frames, or a negative
 * errno; a negative id is one already. */
HOST int print_ustack(void *map, __s32 id, __u32 pid);
HOST int print_kstack(void *map, __s32 id);

/* Write such a stack as one text, the outermost function first: `main;work;read`. As snprintf does, and its length is
 * returned. */
HOST int fold_ustack(void *map, __s32 id, __u32 pid, char *buf, __u64 size);
HOST int fold_kstack(void *map, __s32 id, char *buf, __u64 size);

/* Adds to a stack in this form: prints `main;work;read 17`, or draws it in the picture of --flamegraph. draws_flamegraph() says
 * whether there is one. */
HOST int print_folded(const char *stack, __u64 count);
HOST int draws_flamegraph(void);

/* Copies memory of the workload, of what it starts, or of -p's process; of others with --unsafe. Bytes, or a negative errno. */
HOST long read_mem(__u32 pid, void *dst, __u64 size, __u64 addr);

/* ---- Host functions: strings and memory, as in C ----------------------------------------------------------- */

HOST __SIZE_TYPE__ strlen(const char *s);
HOST __SIZE_TYPE__ strnlen(const char *s, __SIZE_TYPE__ max);
HOST int strcmp(const char *a, const char *b);
HOST int strncmp(const char *a, const char *b, __SIZE_TYPE__ n);
HOST int strcasecmp(const char *a, const char *b);
HOST int strncasecmp(const char *a, const char *b, __SIZE_TYPE__ n);
HOST char *strcpy(char *dst, const char *src);
HOST char *strncpy(char *dst, const char *src, __SIZE_TYPE__ n);
HOST char *strcat(char *dst, const char *src);
HOST char *strncat(char *dst, const char *src, __SIZE_TYPE__ n);
HOST char *strchr(const char *s, int c);
HOST char *strrchr(const char *s, int c);
HOST char *strstr(const char *s, const char *part);
HOST __SIZE_TYPE__ strspn(const char *s, const char *accept);
HOST __SIZE_TYPE__ strcspn(const char *s, const char *reject);
HOST int atoi(const char *s);
HOST long atol(const char *s);
HOST long strtol(const char *s, char **end, int base);
HOST unsigned long strtoul(const char *s, char **end, int base);
HOST int memcmp(const void *a, const void *b, __SIZE_TYPE__ n);
HOST void *memchr(const void *s, int c, __SIZE_TYPE__ n);
HOST void qsort(void *base, __SIZE_TYPE__ count, __SIZE_TYPE__ size, int (*compare)(const void *, const void *));
HOST void *bsearch(const void *key, const void *base, __SIZE_TYPE__ count, __SIZE_TYPE__ size,
		   int (*compare)(const void *, const void *));

/* clang treats these three as its own and then fails on a length it cannot see. A length known when compiling, up to
 * 1,024, is expanded in place, which kernel programs need too; any other is a call of the host. */
HOST void *twinbpf_memcpy(void *dst, const void *src, __SIZE_TYPE__ n);
HOST void *twinbpf_memmove(void *dst, const void *src, __SIZE_TYPE__ n);
HOST void *twinbpf_memset(void *dst, int c, __SIZE_TYPE__ n);
#define __twin_inline_size(n) (__builtin_constant_p(n) && (n) <= 1024)
#ifndef memcpy
#define memcpy(dst, src, n)                                                                                        \
	(__twin_inline_size(n) ? __builtin_memcpy(dst, src, n) : twinbpf_memcpy(dst, src, n))
#endif
#ifndef memmove
#define memmove(dst, src, n)                                                                                       \
	(__twin_inline_size(n) ? __builtin_memmove(dst, src, n) : twinbpf_memmove(dst, src, n))
#endif
#ifndef memset
#define memset(dst, c, n)                                                                                          \
	(__twin_inline_size(n) ? __builtin_memset(dst, c, n) : twinbpf_memset(dst, c, n))
#endif

/* ---- Host functions: maps, by copy ------------------------------------------------------------------------- */

/* The kernel has functions of its own by these names, with which libbpf would compare the types and give up. */
#define map_lookup_elem twinbpf_map_lookup_elem
#define map_update_elem twinbpf_map_update_elem
#define map_delete_elem twinbpf_map_delete_elem
#define map_get_next_key twinbpf_map_get_next_key

/* As the commands of bpf(2): 0, or a negative errno. They copy; a pointer into the map comes from the kernel's
 * bpf_map_lookup_elem, which works in a script as well. */
HOST int map_lookup_elem(void *map, const void *key, void *value);
HOST int map_update_elem(void *map, const void *key, const void *value, __u64 flags);
HOST int map_delete_elem(void *map, const void *key);
/* The key after `key`, the first one for NULL; not 0 at the end. */
HOST int map_get_next_key(void *map, const void *key, void *next);
/* Deletes all entries (an array's become zero), and makes all values zero. The number of entries, or a negative errno. */
HOST int twinbpf_clear(void *map);
HOST int twinbpf_zero(void *map);

/* Calls fn for every entry, on a snapshot taken first, in the order asked for, until fn returns other than 0.
 * Returns the number of calls, or a negative errno. */
HOST long map_for_each(void *map, int (*fn)(const void *key, void *value, void *ctx), void *ctx, __u64 order);

/* Orders of map_for_each; field by field as BTF describes the key or value. 0 is the map's own order. */
enum {
	MAP_BY_KEY = 1,
	MAP_BY_VALUE = 2,
	MAP_DESCENDING = 0x10, /* or it to one of the above */
	MAP_SUMMED = 0x20,     /* of a per-CPU map, fn gets a copy of the sum over all CPUs */
};

/* ---- Host functions: maps as tables and histograms --------------------------------------------------------- */

/*
 * As bpftrace prints them, with `-f json` as its JSON. Per-CPU values are summed. All return the number of entries or
 * histograms printed, or a negative errno.
 */

/* `@name[key]: value` by value; a struct as key is a list, as value `{ .member = 1 }`. An array of one element prints as
 * `@name: value`, larger ones without the elements that are zero. */
HOST int print_map(void *map);
/* The entries with the largest values only; print_map(map, top) of <twinbpf/trace.h>. */
HOST int twinbpf_print_top(void *map, __u64 top);

/* Powers of two, of counters by slot. Either the key is the slot, or a struct whose last member is the slot: a histogram
 * for each value of the others. Or the value is an array of counters: a histogram for each key. */
HOST int print_hist(void *map);

/* The same in steps, with slots of lhist_slot(value, min, max, step). */
HOST int print_lhist(void *map, __s64 min, __s64 max, __s64 step);

/* Slots of print_hist: 0 is below 0, 1 is 0, 2 is 1, 3 is [2, 4), 4 is [4, 8), up to 64. */
#define HIST_SLOTS 65

/* The slot of a number; for programs in the kernel too. */
static __always_inline __u32 hist_slot(__s64 value)
{
	__u64 n = value;
	__u32 slot = 2;

	if (value <= 0)
		return value == 0;
	if (n >> 32) {
		slot += 32;
		n >>= 32;
	}
	if (n >> 16) {
		slot += 16;
		n >>= 16;
	}
	if (n >> 8) {
		slot += 8;
		n >>= 8;
	}
	if (n >> 4) {
		slot += 4;
		n >>= 4;
	}
	if (n >> 2) {
		slot += 2;
		n >>= 2;
	}
	return slot + (n >> 1);
}

/* Slots of print_lhist: 0 is below min, then the steps, the last one is from max on. */
#define LHIST_SLOTS(min, max, step) (((__u64)((max) - (min)) + (step) - 1) / (step) + 2)

static __always_inline __u32 lhist_slot(__s64 value, __s64 min, __s64 max, __s64 step)
{
	if (value < min)
		return 0;
	if (value >= max)
		return LHIST_SLOTS(min, max, step) - 1;
	return (__u64)(value - min) / (__u64)step + 1;
}

/* ---- Host functions: time ---------------------------------------------------------------------------------- */

/* The local time of `ns` nanoseconds since boot (bpf_ktime_get_boot_ns), with the conversions of C's strftime, and %f
 * for microseconds. The length written, or 0 if it does not fit. */
HOST __SIZE_TYPE__ twinbpf_strftime(char *buf, __SIZE_TYPE__ size, const char *fmt, __u64 ns);
#define strftime twinbpf_strftime

/* ---- printf, print, snprintf ------------------------------------------------------------------------------- */

/*
 * A call in BPF carries five arguments, so printf has four left for values and snprintf two. Up to that they travel
 * in registers, beyond that (up to 24) in an array on the stack. Each value becomes 64 bits: signed integers
 * sign-extended, pointers as they are, float, double and long double (which BPF has in 64 bits) as the bits of a double.
 */

/* Declared only so that clang checks format against values; no code refers to it. */
extern int __twin_check(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The bits of x, of type From, as a To of the same size. */
#ifdef __cplusplus
#define __twin_pun(To, From, x) __builtin_bit_cast(To, (From)(x))
#else
#define __twin_pun(To, From, x) ((union { From from; To to; }){ .from = x }).to
#endif

static __always_inline __u64 __twin_double(double x)
{
	return __twin_pun(__u64, double, x);
}

/* The bits of (double)x. clang would call a conversion function here that BPF does not have. */
static __always_inline __u64 __twin_float(float x)
{
	__u64 bits = __twin_pun(__u32, float, x);
	__u64 sign = bits >> 31 << 63, exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
	int i;

	if (exponent == 0xff) /* infinity, not a number */
		return sign | 0x7ffULL << 52 | fraction << 29;
	if (exponent == 0) { /* zero, or a denormal: normalise it */
		if (fraction == 0)
			return sign;
		exponent = 1;
		for (i = 0; i < 23 && !(fraction & 0x800000); i++) {
			fraction <<= 1;
			exponent--;
		}
		fraction &= 0x7fffff;
	}
	return sign | (exponent + 1023 - 127) << 52 | fraction << 29;
}

#ifdef __cplusplus
static __always_inline __u64 __twin_bits(float x)
{
	return __twin_float(x);
}

static __always_inline __u64 __twin_bits(double x)
{
	return __twin_double(x);
}

static __always_inline __u64 __twin_bits(long double x)
{
	return __twin_double(x);
}

template <typename T> static __always_inline __u64 __twin_bits(T x)
{
	return (__u64)x;
}

template <typename... T> static __always_inline int __twin_printf(const char *fmt, T... values)
{
	if constexpr (sizeof...(values) <= 4) {
		return twinbpf_printf(fmt, __twin_bits(values)...);
	} else {
		const __u64 array[] = { __twin_bits(values)... };
		return twinbpf_printfv(fmt, array, sizeof...(values));
	}
}

template <typename... T> static __always_inline int __twin_snprintf(char *buf, __u64 size, const char *fmt, T... values)
{
	if constexpr (sizeof...(values) <= 2) {
		return twinbpf_snprintf(buf, size, fmt, __twin_bits(values)...);
	} else {
		const __u64 array[] = { __twin_bits(values)... };
		return twinbpf_snprintfv(buf, size, fmt, array, sizeof...(values));
	}
}

#define printf(fmt, ...) (0 ? __twin_check(fmt, ##__VA_ARGS__) : __twin_printf(fmt, ##__VA_ARGS__))
#define snprintf(buf, size, fmt, ...)                                                                              \
	(0 ? __twin_check(fmt, ##__VA_ARGS__) : __twin_snprintf(buf, size, fmt, ##__VA_ARGS__))
#else
/* Every branch of _Generic must be correct C for every type, hence the inner ones. */
#define __twin_bits(x) __twin_word(x)
#define __twin_word(x)                                                                                             \
	_Generic((x),                                                                                              \
		float: __twin_float(_Generic((x), float: (x), default: 0.0f)),                                     \
		double: __twin_double(_Generic((x), double: (x), default: 0.0)),                                   \
		long double: __twin_double(_Generic((x), long double: (x), default: 0.0)),                         \
		default: (__u64)_Generic((x), float: 0, double: 0, long double: 0, default: (x)))

/* Values after the first, each behind its comma. */
#define __twin_rest(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, \
		    _21, _22, _23, _24, N, ...)                                                                    \
	N
#define __twin_count(...)                                                                                          \
	__twin_rest(0, ##__VA_ARGS__, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5,   \
		    4, 3, 2, 1, 0)

#define __twin_map0()
#define __twin_map1(x) , __twin_bits(x)
#define __twin_map2(x, ...) , __twin_bits(x) __twin_map1(__VA_ARGS__)
#define __twin_map3(x, ...) , __twin_bits(x) __twin_map2(__VA_ARGS__)
#define __twin_map4(x, ...) , __twin_bits(x) __twin_map3(__VA_ARGS__)
#define __twin_map5(x, ...) , __twin_bits(x) __twin_map4(__VA_ARGS__)
#define __twin_map6(x, ...) , __twin_bits(x) __twin_map5(__VA_ARGS__)
#define __twin_map7(x, ...) , __twin_bits(x) __twin_map6(__VA_ARGS__)
#define __twin_map8(x, ...) , __twin_bits(x) __twin_map7(__VA_ARGS__)
#define __twin_map9(x, ...) , __twin_bits(x) __twin_map8(__VA_ARGS__)
#define __twin_map10(x, ...) , __twin_bits(x) __twin_map9(__VA_ARGS__)
#define __twin_map11(x, ...) , __twin_bits(x) __twin_map10(__VA_ARGS__)
#define __twin_map12(x, ...) , __twin_bits(x) __twin_map11(__VA_ARGS__)
#define __twin_map13(x, ...) , __twin_bits(x) __twin_map12(__VA_ARGS__)
#define __twin_map14(x, ...) , __twin_bits(x) __twin_map13(__VA_ARGS__)
#define __twin_map15(x, ...) , __twin_bits(x) __twin_map14(__VA_ARGS__)
#define __twin_map16(x, ...) , __twin_bits(x) __twin_map15(__VA_ARGS__)
#define __twin_map17(x, ...) , __twin_bits(x) __twin_map16(__VA_ARGS__)
#define __twin_map18(x, ...) , __twin_bits(x) __twin_map17(__VA_ARGS__)
#define __twin_map19(x, ...) , __twin_bits(x) __twin_map18(__VA_ARGS__)
#define __twin_map20(x, ...) , __twin_bits(x) __twin_map19(__VA_ARGS__)
#define __twin_map21(x, ...) , __twin_bits(x) __twin_map20(__VA_ARGS__)
#define __twin_map22(x, ...) , __twin_bits(x) __twin_map21(__VA_ARGS__)
#define __twin_map23(x, ...) , __twin_bits(x) __twin_map22(__VA_ARGS__)
#define __twin_map24(x, ...) , __twin_bits(x) __twin_map23(__VA_ARGS__)
#define __twin_values(...) __twin_join(__twin_map, __twin_count(__VA_ARGS__))(__VA_ARGS__)

/* The array's first element is a filler in front of the first comma. */
#define __twin_array(...) (&((const __u64[]){ 0 __twin_values(__VA_ARGS__) })[1]), __twin_count(__VA_ARGS__)

#define __twin_printf_direct(fmt, ...) twinbpf_printf(fmt __twin_values(__VA_ARGS__))
#define __twin_printf_packed(fmt, ...) twinbpf_printfv(fmt, __twin_array(__VA_ARGS__))
#define __twin_snprintf_direct(buf, size, fmt, ...) twinbpf_snprintf(buf, size, fmt __twin_values(__VA_ARGS__))
#define __twin_snprintf_packed(buf, size, fmt, ...) twinbpf_snprintfv(buf, size, fmt, __twin_array(__VA_ARGS__))

#define __twin_printf_how(...)                                                                                     \
	__twin_rest(0, ##__VA_ARGS__, packed, packed, packed, packed, packed, packed, packed, packed, packed,      \
		    packed, packed, packed, packed, packed, packed, packed, packed, packed, packed, packed,        \
		    direct, direct, direct, direct, direct)
#define __twin_snprintf_how(...)                                                                                   \
	__twin_rest(0, ##__VA_ARGS__, packed, packed, packed, packed, packed, packed, packed, packed, packed,      \
		    packed, packed, packed, packed, packed, packed, packed, packed, packed, packed, packed,        \
		    packed, packed, direct, direct, direct)

#define printf(fmt, ...)                                                                                           \
	(0 ? __twin_check(fmt, ##__VA_ARGS__)                                                                      \
	   : __twin_join(__twin_printf_, __twin_printf_how(__VA_ARGS__))(fmt, ##__VA_ARGS__))
#define snprintf(buf, size, fmt, ...)                                                                              \
	(0 ? __twin_check(fmt, ##__VA_ARGS__)                                                                      \
	   : __twin_join(__twin_snprintf_, __twin_snprintf_how(__VA_ARGS__))(buf, size, fmt, ##__VA_ARGS__))
#endif
#define print(fmt, ...) printf(fmt, ##__VA_ARGS__)

/* ---- Kernel helpers that a script and a kernel program may share ------------------------------------------- */

#ifndef __BPF_HELPERS__
/*
 * A helper is called by its number; as everywhere, that is written as the address of a constant function pointer.
 * <bpf/bpf_helpers.h> has them all. The ones here also work in a script.
 */
#define __twin_helper(number, result, name, ...)                                                                   \
	static result (*const name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))number
__twin_helper(1, void *, bpf_map_lookup_elem, void *map, const void *key);
__twin_helper(2, long, bpf_map_update_elem, void *map, const void *key, const void *value, __u64 flags);
__twin_helper(3, long, bpf_map_delete_elem, void *map, const void *key);
__twin_helper(4, long, bpf_probe_read, void *dst, __u32 size, const void *from);
__twin_helper(5, __u64, bpf_ktime_get_ns, void);
__twin_helper(6, long, bpf_trace_printk, const char *fmt, __u32 fmt_size, ...);
__twin_helper(7, __u32, bpf_get_prandom_u32, void);
__twin_helper(8, __u32, bpf_get_smp_processor_id, void);
__twin_helper(12, long, bpf_tail_call, void *ctx, void *prog_array, __u32 index);
__twin_helper(14, __u64, bpf_get_current_pid_tgid, void);
__twin_helper(15, __u64, bpf_get_current_uid_gid, void);
__twin_helper(16, long, bpf_get_current_comm, void *buf, __u32 size);
__twin_helper(25, long, bpf_perf_event_output, void *ctx, void *map, __u64 flags, void *data, __u64 size);
__twin_helper(45, long, bpf_probe_read_str, void *dst, __u32 size, const void *from);
__twin_helper(87, long, bpf_map_push_elem, void *map, const void *value, __u64 flags);
__twin_helper(88, long, bpf_map_pop_elem, void *map, void *value);
__twin_helper(89, long, bpf_map_peek_elem, void *map, void *value);
__twin_helper(93, long, bpf_spin_lock, struct bpf_spin_lock *lock);
__twin_helper(94, long, bpf_spin_unlock, struct bpf_spin_lock *lock);
__twin_helper(105, long, bpf_strtol, const char *buf, unsigned long size, __u64 flags, long *result);
__twin_helper(106, long, bpf_strtoul, const char *buf, unsigned long size, __u64 flags, unsigned long *result);
__twin_helper(112, long, bpf_probe_read_user, void *dst, __u32 size, const void *from);
__twin_helper(113, long, bpf_probe_read_kernel, void *dst, __u32 size, const void *from);
__twin_helper(114, long, bpf_probe_read_user_str, void *dst, __u32 size, const void *from);
__twin_helper(115, long, bpf_probe_read_kernel_str, void *dst, __u32 size, const void *from);
__twin_helper(125, __u64, bpf_ktime_get_boot_ns, void);
__twin_helper(130, long, bpf_ringbuf_output, void *ringbuf, void *data, __u64 size, __u64 flags);
__twin_helper(131, void *, bpf_ringbuf_reserve, void *ringbuf, __u64 size, __u64 flags);
__twin_helper(132, void, bpf_ringbuf_submit, void *data, __u64 flags);
__twin_helper(133, void, bpf_ringbuf_discard, void *data, __u64 flags);
__twin_helper(134, __u64, bpf_ringbuf_query, void *ringbuf, __u64 flags);
__twin_helper(160, __u64, bpf_ktime_get_coarse_ns, void);
__twin_helper(164, long, bpf_for_each_map_elem, void *map, void *fn, void *ctx, __u64 flags);
__twin_helper(165, long, bpf_snprintf, char *buf, __u32 size, const char *fmt, __u64 *values, __u32 bytes);
__twin_helper(177, long, bpf_trace_vprintk, const char *fmt, __u32 fmt_size, const void *values, __u32 bytes);
__twin_helper(181, long, bpf_loop, __u32 count, void *fn, void *ctx, __u64 flags);
__twin_helper(182, long, bpf_strncmp, const char *a, __u32 size, const char *b);
__twin_helper(195, void *, bpf_map_lookup_percpu_elem, void *map, const void *key, __u32 cpu);
__twin_helper(208, __u64, bpf_ktime_get_tai_ns, void);
#endif

#endif

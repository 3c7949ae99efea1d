/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a tracing tool includes, in place of <twinbpf/script.h>: programs for the kernel print, and count into maps.
 *
 *     #include <twinbpf/trace.h>
 *
 *     SEC("tp/sched/sched_process_exec")
 *     int exec(void *ctx)
 *     {
 *             printf("%d %s\n", pid(), comm());
 *             return 0;
 *     }
 *
 *     LICENSE("GPL");
 *
 * `printf` and its like are one macro for both sides. In userspace it calls the host. In the kernel it reserves a record
 * of the session's ring buffer, puts the number of the format and the values there, and userspace prints it. Values are
 * computed once there is room: what a value does besides does not happen where the record is lost. To stock
 * libbpf the object is one that prints nothing: the function that reserves is weak, and no kernel has it.
 *
 * In C++ the kernel side cannot print: the header then has what <twinbpf/script.h> has.
 */
#ifndef TWINBPF_TRACE_H
#define TWINBPF_TRACE_H

#include <twinbpf/script.h>

#ifndef __cplusplus

/* ---- Records ----------------------------------------------------------------------------------------------- */

/* Bytes of a string that a kernel program prints; what is longer is cut, and ends in "...". */
#ifndef TWINBPF_STRLEN
#define TWINBPF_STRLEN 64
#endif

/* What a record asks userspace to do; see trace/src/print.rs. */
enum {
	__TWIN_PRINTF,
	__TWIN_EXIT,
	__TWIN_PRINT_MAP,
	__TWIN_PRINT_HIST,
	__TWIN_PRINT_LHIST,
	__TWIN_CLEAR,
	__TWIN_ZERO,
	__TWIN_JOIN,
};

struct __twin_kernel_text;
struct __twin_user_text;

/* A string in the kernel's memory, and one in the memory of the current process, as values of printf. In a script both
 * are a string of its own. A `char *` is taken for a string of the kernel; an array is copied. */
#define twinbpf_str(p) ((const struct __twin_kernel_text *)(unsigned long)(p))
#define twinbpf_ustr(p) ((const struct __twin_user_text *)(unsigned long)(p))

/* Time, number of the format. */
#define __TWIN_HEAD 16
/* Of strings one byte more is read than is printed, so that it is known whether they were cut. */
#define __TWIN_TEXT (TWINBPF_STRLEN + 8)

#define __twin_is(x, type) __builtin_types_compatible_p(__typeof__(x), type)
#define __twin_is_array(x)                                                                                         \
	(__twin_is(x, char[sizeof(x)]) || __twin_is(x, signed char[sizeof(x)]) ||                                  \
	 __twin_is(x, unsigned char[sizeof(x)]) || __twin_is(x, const char[sizeof(x)]) ||                          \
	 __twin_is(x, const signed char[sizeof(x)]) || __twin_is(x, const unsigned char[sizeof(x)]))
#define __twin_is_user(x) __twin_is(x, const struct __twin_user_text *)
#define __twin_is_text(x)                                                                                          \
	(__twin_is(x, const struct __twin_kernel_text *) || __twin_is_user(x) || __twin_is(x, char *) ||           \
	 __twin_is(x, const char *) || __twin_is(x, unsigned char *) || __twin_is(x, const unsigned char *))

/* Numbers that are printed as names: a pointer whose type says what it is a name of. In a script the host makes the string. */
struct __twin_errno_text;
struct __twin_signal_text;
struct __twin_syscall_text;
struct __twin_ksym_text;
struct __twin_time_text;
struct __twin_cgroup_text;
struct __twin_enum_text;
#define __twin_tagged(kind, number) ((const struct __twin_##kind##_text *)(unsigned long)(number))
#undef errno_name
#undef signal_name
#undef syscall_name
#undef ksym_name
#undef time_name
#define errno_name(number) __twin_tagged(errno, number)
#define signal_name(number) __twin_tagged(signal, number)
#define syscall_name(number) __twin_tagged(syscall, number)
#define ksym_name(address) __twin_tagged(ksym, address)
#define time_name(nanoseconds) __twin_tagged(time, nanoseconds)
#ifndef TWINBPF_PLAIN
#undef cgroup_path
#undef enum_name
#define cgroup_path(id) __twin_tagged(cgroup, id)
#define enum_name(type, value) __twin_tagged(enum, __twin_enumerator(type, value))
#endif
/* What it is a name of: 1, 2, ...; 0 for other values. */
#define __twin_named(x)                                                                                            \
	_Generic((x), const struct __twin_errno_text *: 1, const struct __twin_signal_text *: 2,                   \
		 const struct __twin_syscall_text *: 3, const struct __twin_ksym_text *: 4,                        \
		 const struct __twin_time_text *: 5, const struct __twin_cgroup_text *: 6,                         \
		 const struct __twin_enum_text *: 7, default: 0)
#define __twin_number(x) ((unsigned long)_Generic((x), float: 0, double: 0, long double: 0, default: (x)))
static __always_inline __u64 __twin_name(int named, __u64 number)
{
	return (unsigned long)(named == 1 ? twinbpf_errno_name(number) :
			       named == 2 ? twinbpf_signal_name(number) :
			       named == 3 ? twinbpf_syscall_name(number) :
			       named == 4 ? twinbpf_ksym_name(number) :
			       named == 5 ? twinbpf_time_name(number) :
			       named == 6 ? twinbpf_cgroup_path(number) :
					    twinbpf_enum_name(number));
}

/* For a script: the string of a name. */
#undef __twin_bits
#define __twin_bits(x) (__twin_named(x) ? __twin_name(__twin_named(x), __twin_number(x)) : __twin_word(x))

/* What userspace makes a text of, for printf in kernel programs: the function at an address of the current process; an
 * address of the network in the kernel's memory, of family AF_INET (2) or AF_INET6 (10); the kernel's stack, of the
 * program's context, a line for each frame. */
struct __twin_usym_text;
struct __twin_ntop_text;
struct __twin_kstack_text;
struct __twin_ntop {
	__u64 family;
	const void *bytes;
};
#define usym_name(address) __twin_tagged(usym, address)
#define twinbpf_ntop(family, p) ((const struct __twin_ntop_text *)&(struct __twin_ntop){ family, p })
#define twinbpf_kstack(ctx) ((const struct __twin_kstack_text *)(ctx))
#define __TWIN_STACK (127 * 8)
/* 1, 2, ...; 0 for other values. */
#define __twin_built(x)                                                                                            \
	_Generic((x), const struct __twin_usym_text *: 1, const struct __twin_ntop_text *: 2,                      \
		 const struct __twin_kstack_text *: 3, default: 0)
static long (*const __twin_get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) =
	(long (*)(void *, void *, __u32, __u64))67;

/* Bytes of a value's text in a record, or of what it is made of; 0 for a number. */
#define __twin_size(x)                                                                                             \
	(__twin_is_array(x) ? sizeof(x) : __twin_is_text(x) ? __TWIN_TEXT : __twin_built(x) == 1 ? 8 :             \
	 __twin_built(x) == 2 ? 16 : __twin_built(x) == 3 ? __TWIN_STACK : 0)
#define __twin_room(x) ((__twin_size(x) + 7) / 8 * 8 + 8)
#define __twin_address(x) ((const void *)(unsigned long)_Generic((x), float: 0, double: 0, long double: 0, default: (x)))
/* For the check of the format: the types that it knows. */
#define __twin_plain(x)                                                                                            \
	_Generic((x), const struct __twin_kernel_text *: (const char *)0, const struct __twin_user_text *: (const char *)0, \
		 const struct __twin_errno_text *: (const char *)0, const struct __twin_signal_text *: (const char *)0, \
		 const struct __twin_syscall_text *: (const char *)0, const struct __twin_ksym_text *: (const char *)0, \
		 const struct __twin_time_text *: (const char *)0, const struct __twin_usym_text *: (const char *)0, \
		 const struct __twin_cgroup_text *: (const char *)0, const struct __twin_enum_text *: (const char *)0, \
		 const struct __twin_ntop_text *: (const char *)0, const struct __twin_kstack_text *: (const char *)0, \
		 default: (x))

/* Text at `at`, after its length; or after a number what it is made of. */
#define __twin_put_text(at, x)                                                                                     \
	do {                                                                                                       \
		if (__twin_is_array(x)) {                                                                          \
			*(__s64 *)(at) = bpf_probe_read_kernel((at) + 8, sizeof(x), __twin_address(x));            \
		} else if (__twin_built(x) == 1) {                                                                 \
			*(__u64 *)(at) = bpf_get_current_pid_tgid() >> 32;                                         \
			*(const void **)((at) + 8) = __twin_address(x);                                            \
		} else if (__twin_built(x) == 2) {                                                                 \
			const struct __twin_ntop *__twin_from = __twin_address(x);                                 \
			*(__u64 *)(at) = __twin_from->family;                                                      \
			bpf_probe_read_kernel((at) + 8, 16, __twin_from->bytes);                                   \
		} else if (__twin_built(x) == 3) {                                                                 \
			*(__s64 *)(at) = __twin_get_stack((void *)__twin_address(x), (at) + 8, __TWIN_STACK, 0);   \
		} else if (__twin_is_user(x)) {                                                                    \
			*(__s64 *)(at) = bpf_probe_read_user_str((at) + 8, __TWIN_TEXT, __twin_address(x));        \
		} else {                                                                                           \
			*(__s64 *)(at) = bpf_probe_read_kernel_str((at) + 8, __TWIN_TEXT, __twin_address(x));      \
		}                                                                                                  \
	} while (0)
#define __twin_put(x)                                                                                              \
	do {                                                                                                       \
		if (__twin_size(x))                                                                                \
			__twin_put_text(__twin_at, x);                                                             \
		else                                                                                               \
			*(__u64 *)__twin_at = __twin_word(x);                                                      \
		__twin_at += __twin_room(x);                                                                       \
	} while (0);

/* An operation on each value. */
#define __twin_each0(op)
#define __twin_each1(op, x) op(x)
#define __twin_each2(op, x, ...) op(x) __twin_each1(op, __VA_ARGS__)
#define __twin_each3(op, x, ...) op(x) __twin_each2(op, __VA_ARGS__)
#define __twin_each4(op, x, ...) op(x) __twin_each3(op, __VA_ARGS__)
#define __twin_each5(op, x, ...) op(x) __twin_each4(op, __VA_ARGS__)
#define __twin_each6(op, x, ...) op(x) __twin_each5(op, __VA_ARGS__)
#define __twin_each7(op, x, ...) op(x) __twin_each6(op, __VA_ARGS__)
#define __twin_each8(op, x, ...) op(x) __twin_each7(op, __VA_ARGS__)
#define __twin_each9(op, x, ...) op(x) __twin_each8(op, __VA_ARGS__)
#define __twin_each10(op, x, ...) op(x) __twin_each9(op, __VA_ARGS__)
#define __twin_each11(op, x, ...) op(x) __twin_each10(op, __VA_ARGS__)
#define __twin_each12(op, x, ...) op(x) __twin_each11(op, __VA_ARGS__)
#define __twin_each13(op, x, ...) op(x) __twin_each12(op, __VA_ARGS__)
#define __twin_each14(op, x, ...) op(x) __twin_each13(op, __VA_ARGS__)
#define __twin_each15(op, x, ...) op(x) __twin_each14(op, __VA_ARGS__)
#define __twin_each16(op, x, ...) op(x) __twin_each15(op, __VA_ARGS__)
#define __twin_each17(op, x, ...) op(x) __twin_each16(op, __VA_ARGS__)
#define __twin_each18(op, x, ...) op(x) __twin_each17(op, __VA_ARGS__)
#define __twin_each19(op, x, ...) op(x) __twin_each18(op, __VA_ARGS__)
#define __twin_each20(op, x, ...) op(x) __twin_each19(op, __VA_ARGS__)
#define __twin_each21(op, x, ...) op(x) __twin_each20(op, __VA_ARGS__)
#define __twin_each22(op, x, ...) op(x) __twin_each21(op, __VA_ARGS__)
#define __twin_each23(op, x, ...) op(x) __twin_each22(op, __VA_ARGS__)
#define __twin_each24(op, x, ...) op(x) __twin_each23(op, __VA_ARGS__)
#define __twin_each(op, ...) __twin_join(__twin_each, __twin_count(__VA_ARGS__))(op, ##__VA_ARGS__)

/* Of a text with the highest bit where it is cut; of other values that print as one what they are. */
#define __twin_sizes(x)                                                                                            \
	, __twin_built(x) ? 0x6000 | __twin_built(x) : __twin_named(x) ? 0x4000 | __twin_named(x) :                \
	  (!__twin_is_array(x) && __twin_is_text(x) ? 0x8000 : 0) | __twin_size(x)
#define __twin_rooms(x) +__twin_room(x)
#define __twin_plains(x) , __twin_plain(x)
#define __twin_literal(fmt) __builtin_choose_expr(__builtin_constant_p(fmt), fmt, "")

/* Sends a record of the kernel. The text lies in a section of its own, with the sizes of the values' texts after a filler. */
#define __twin_send(kind_, text_, ...)                                                                             \
	do {                                                                                                       \
		static const struct {                                                                              \
			__u8 kind, count;                                                                          \
			__u16 sizes[1 + __twin_count(__VA_ARGS__)];                                                \
			char text[sizeof(__twin_literal(text_))];                                                  \
		} __twin_format __attribute__((section(".rodata.twinbpf"))) = {                                    \
			kind_, __twin_count(__VA_ARGS__), { 0 __twin_each(__twin_sizes, ##__VA_ARGS__) },          \
			__twin_literal(text_)                                                                      \
		};                                                                                                 \
		__u8 *__twin_record = twinbpf_reserve ?                                                            \
			twinbpf_reserve(NULL, __TWIN_HEAD __twin_each(__twin_rooms, ##__VA_ARGS__), 0) : NULL;     \
		if (__twin_record) {                                                                               \
			__u8 *__twin_at = __twin_record + __TWIN_HEAD;                                             \
			((__u64 *)__twin_record)[0] = bpf_ktime_get_boot_ns();                                     \
			((__u64 *)__twin_record)[1] = (unsigned long)&__twin_format;                               \
			__twin_each(__twin_put, ##__VA_ARGS__)                                                     \
			(void)__twin_at;                                                                           \
			bpf_ringbuf_submit(__twin_record, 0);                                                      \
		}                                                                                                  \
	} while (0)

/* ---- printf, exit, print_map in programs of both sides ------------------------------------------------------ */

/* A format that is no literal can be printed by the host only. */
#undef printf
#define printf(fmt, ...)                                                                                           \
	({                                                                                                         \
		int __twin_result = 0;                                                                             \
		if (0)                                                                                             \
			__twin_check(fmt __twin_each(__twin_plains, ##__VA_ARGS__));                               \
		if (twinbpf_printf || !__builtin_constant_p(fmt))                                                  \
			__twin_result =                                                                            \
				__twin_join(__twin_printf_, __twin_printf_how(__VA_ARGS__))(fmt, ##__VA_ARGS__);   \
		else                                                                                               \
			__twin_send(__TWIN_PRINTF, fmt, ##__VA_ARGS__);                                            \
		__twin_result;                                                                                     \
	})

/* A call of the host in userspace, a record from the kernel. */
#define __twin_either(host, ...)                                                                                   \
	({                                                                                                         \
		if (twinbpf_printf)                                                                                \
			host;                                                                                      \
		else                                                                                               \
			__twin_send(__VA_ARGS__);                                                                  \
	})

/* Ends the session once the record arrives; a kernel program goes on until then. */
#undef exit
#define __twin_exit2(none, status) __twin_either(twinbpf_exit(status), __TWIN_EXIT, "", (__s64)(status))
#define __twin_exit1(none) __twin_exit2(none, 0)
#define exit(...) __twin_join(__twin_exit, __twin_count(0, ##__VA_ARGS__))(0, ##__VA_ARGS__)

/* From the kernel these print, clear or zero a map when their record arrives. */
#define __twin_print_map2(map, text, top)                                                                          \
	__twin_either(twinbpf_print_top(map, top), __TWIN_PRINT_MAP, text, (__u64)(top))
#define __twin_print_map1(map, text) __twin_print_map2(map, text, ~0ULL)
#define print_map(map, ...) __twin_join(__twin_print_map, __twin_count(map, ##__VA_ARGS__))(map, #map, ##__VA_ARGS__)
#define twinbpf_clear_map(map) __twin_either(twinbpf_clear(map), __TWIN_CLEAR, #map)
#define twinbpf_zero_map(map) __twin_either(twinbpf_zero(map), __TWIN_ZERO, #map)
#define print_hist(map) __twin_either((print_hist)(map), __TWIN_PRINT_HIST, #map)
#define print_lhist(map, min, max, step)                                                                           \
	__twin_either((print_lhist)(map, min, max, step), __TWIN_PRINT_LHIST, #map, (__s64)(min), (__s64)(max),    \
		      (__s64)(step))

static __always_inline const struct __twin_user_text *__twin_item(const void *list, __u32 index)
{
	unsigned long item = 0;

	bpf_probe_read_user(&item, sizeof(item), (const unsigned long *)list + index);
	return twinbpf_ustr(item);
}
/* Prints the strings of a list in the memory of the process, as `argv` is one, up to 16, in a line. For kernel programs. */
#define twinbpf_join(list)                                                                                         \
	__twin_send(__TWIN_JOIN, "", __twin_item(list, 0), __twin_item(list, 1), __twin_item(list, 2),             \
		    __twin_item(list, 3), __twin_item(list, 4), __twin_item(list, 5), __twin_item(list, 6),        \
		    __twin_item(list, 7), __twin_item(list, 8), __twin_item(list, 9), __twin_item(list, 10),       \
		    __twin_item(list, 11), __twin_item(list, 12), __twin_item(list, 13), __twin_item(list, 14),    \
		    __twin_item(list, 15))

/* ---- Who runs, and when ------------------------------------------------------------------------------------- */

struct twinbpf_comm {
	char text[16];
};

static __always_inline struct twinbpf_comm twinbpf_comm(void)
{
	struct twinbpf_comm comm;

	bpf_get_current_comm(&comm, sizeof(comm));
	return comm;
}

/* Set when the session loads the object. */
static const volatile __u64 __twin_start;
static const volatile __u32 __twin_self;

#define twinbpf_pid() ((__u32)(bpf_get_current_pid_tgid() >> 32))
#define twinbpf_tid() ((__u32)bpf_get_current_pid_tgid())
#define twinbpf_uid() ((__u32)bpf_get_current_uid_gid())
#define twinbpf_gid() ((__u32)(bpf_get_current_uid_gid() >> 32))
#define twinbpf_cpu() bpf_get_smp_processor_id()
/* Nanoseconds since boot: the clock of all records, and of strftime. */
#define twinbpf_nsecs() bpf_ktime_get_boot_ns()
/* Nanoseconds since the session was loaded. */
#define twinbpf_elapsed() (bpf_ktime_get_boot_ns() - __twin_start)
/* Whether the current process is the session's own. */
#define twinbpf_is_self() (twinbpf_pid() == __twin_self)
/* The name of the program. */
#define twinbpf_probe() (__func__)

/* ---- Aggregations ------------------------------------------------------------------------------------------- */

/*
 * Maps per CPU, declared by one line, and expressions that add to them, exact from any number of CPUs. The key is of the
 * map's key type; a string may be an array. Without a key type, and without a key, a map is one value.
 *
 *     MAP_COUNT(calls, struct twinbpf_comm);  count(&calls, key)
 *     MAP_SUM(bytes, __u32);                  sum(&bytes, key, n)
 *     MAP_AVG  MAP_STATS  MAP_MIN  MAP_MAX    avg, stats, min, max(&map, key, n)
 *     MAP_HIST(times, __u32);                 hist(&times, key, n), powers of two
 *     MAP_LHIST(sizes, 0, 100, 10, __u32);    lhist(&sizes, key, n, 0, 100, 10), steps
 *     MAP_COUNT(all);  MAP_HIST(every);       count(&all), hist(&every, n)
 *     MAP_HASH(began, __u32, __u64);          for values that programs keep: set, get, del(&began, key)
 *
 * A tool without END prints its maps at the end, in the order of their declaration, but for MAP_HASH; print_map and
 * print_hist do so at any time, print_map(&map, n) the n largest entries. A map `_` prints as `@` alone.
 *
 * DISPLAY and DISPLAY_MAP of <twinbpf/script.h> say otherwise:
 *
 *     MAP_SUM(bytes, __u32) DISPLAY("title=Bytes by process, columns=pid, unit=bytes, top=10");
 */
#ifndef TWINBPF_ENTRIES
#define TWINBPF_ENTRIES 10240
#endif

struct twinbpf_avg {
	__u64 avg_count;
	__s64 avg_total;
};
struct twinbpf_stats {
	__u64 stats_count;
	__s64 stats_total;
};
struct twinbpf_min {
	__u64 min_count;
	__s64 min_value;
};
struct twinbpf_max {
	__u64 max_count;
	__s64 max_value;
};

#define __twin_define(name, map_type, key_type, value_type, entries)                                               \
	struct {                                                                                                   \
		__uint(type, map_type);                                                                            \
		__type(key, key_type);                                                                             \
		__type(value, value_type);                                                                         \
		__uint(max_entries, entries);                                                                      \
	} name SEC(".maps")
/* The text tells the session how the map is printed. The map comes last, so that DISPLAY may follow it. */
#define __twin_shown(name, text)                                                                                   \
	static const char __twin_join(__twin_shown_, name)[]                                                      \
		__attribute__((section(".rodata.twinmaps"), used)) = text
#define __twin_table0(name, value_type)                                                                            \
	__twin_shown(name, "map " #name);                                                                          \
	__twin_define(name, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, value_type, 1)
#define __twin_table1(name, value_type, key_type)                                                                  \
	__twin_shown(name, "map " #name);                                                                          \
	__twin_define(name, BPF_MAP_TYPE_PERCPU_HASH, key_type, value_type, TWINBPF_ENTRIES)
#define __twin_slots0(name, slots, text)                                                                           \
	__twin_shown(name, text);                                                                                  \
	__twin_define(name, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, slots)
#define __twin_slots1(name, slots, text, key_type)                                                                 \
	struct __twin_join(__twin_slot_, name) {                                                                  \
		__typeof__(key_type) key;                                                                          \
		__u32 slot;                                                                                        \
	};                                                                                                         \
	__twin_shown(name, text);                                                                                  \
	__twin_define(name, BPF_MAP_TYPE_PERCPU_HASH, struct __twin_join(__twin_slot_, name), __u64, TWINBPF_ENTRIES)

#define MAP_COUNT(name, ...) __twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, __u64, ##__VA_ARGS__)
#define MAP_SUM(name, ...) __twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, __s64, ##__VA_ARGS__)
#define MAP_AVG(name, ...) __twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, struct twinbpf_avg, ##__VA_ARGS__)
#define MAP_STATS(name, ...)                                                                                       \
	__twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, struct twinbpf_stats, ##__VA_ARGS__)
#define MAP_MIN(name, ...) __twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, struct twinbpf_min, ##__VA_ARGS__)
#define MAP_MAX(name, ...) __twin_join(__twin_table, __twin_count(__VA_ARGS__))(name, struct twinbpf_max, ##__VA_ARGS__)
#define MAP_HIST(name, ...)                                                                                        \
	__twin_join(__twin_slots, __twin_count(__VA_ARGS__))(name, HIST_SLOTS, "hist " #name, ##__VA_ARGS__)
#define MAP_LHIST(name, min, max, step, ...)                                                                       \
	__twin_join(__twin_slots, __twin_count(__VA_ARGS__))(name, LHIST_SLOTS(min, max, step),                    \
							      "lhist " #name " " __twin_text(min) " " __twin_text(max)     \
							      " " __twin_text(step), ##__VA_ARGS__)
/* The text of a number that may be a macro. */
#define __twin_text(number) __twin_as_text(number)
#define __twin_as_text(number) #number
#define MAP_HASH(name, key_type, value_type)                                                                       \
	__twin_define(name, BPF_MAP_TYPE_HASH, key_type, value_type, TWINBPF_ENTRIES)

/* The value of a key on this CPU, made zero if it is not there; NULL where the map is full. */
static __always_inline void *__twin_value(void *map, const void *key, const void *zero)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		/* Another CPU may be sooner. */
		bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
	}
	return value;
}

/* Arrays and structs are copied, other keys assigned. */
#define __twin_is_record(x) (__builtin_classify_type(x) == 12)
#define __twin_is_number(x) (!__twin_is_array(x) && !__twin_is_record(x))
#define __twin_set(to, from)                                                                                       \
	do {                                                                                                       \
		_Static_assert(__twin_is_array(to) == __twin_is_array(from), "the map has another type of key");   \
		_Static_assert(__twin_is_record(to) == __twin_is_record(from), "the map has another type of key"); \
		_Static_assert(!__twin_is_record(to) || sizeof(to) == sizeof(from), "the map has another type of key"); \
		if (__twin_is_array(from)) {                                                                       \
			bpf_probe_read_kernel(&(to), sizeof(from) < sizeof(to) ? sizeof(from) : sizeof(to),        \
					      __twin_address(__builtin_choose_expr(__twin_is_array(from), (from), 0))); \
		} else if (__twin_is_record(from)) {                                                               \
			__auto_type __twin_copy = __builtin_choose_expr(__twin_is_record(from), (from), (char)0);  \
			__builtin_memcpy(&(to), &__twin_copy, sizeof(__twin_copy));                                \
		} else {                                                                                           \
			*(__typeof__(__builtin_choose_expr(__twin_is_number(to), (to), (char)0)) *)&(to) =         \
				__builtin_choose_expr(__twin_is_number(from), (from), (char)0);                    \
		}                                                                                                  \
	} while (0)

/* A key is written to, whatever the key of the call is. */
#if __clang_major__ >= 19
#define __twin_typeof __typeof_unqual__
#else
#define __twin_typeof __typeof__
#endif

/* A key of several values. */
#define __twin_key1(a) \
	({ \
		struct { \
			__twin_typeof(a) a0; \
		} __twin_key; \
		__builtin_memset(&__twin_key, 0, sizeof(__twin_key)); \
		__twin_set(__twin_key.a0, a); \
		__twin_key; \
	})
#define __twin_key2(a, b) \
	({ \
		struct { \
			__twin_typeof(a) a0; \
			__twin_typeof(b) a1; \
		} __twin_key; \
		__builtin_memset(&__twin_key, 0, sizeof(__twin_key)); \
		__twin_set(__twin_key.a0, a); \
		__twin_set(__twin_key.a1, b); \
		__twin_key; \
	})
#define __twin_key3(a, b, c) \
	({ \
		struct { \
			__twin_typeof(a) a0; \
			__twin_typeof(b) a1; \
			__twin_typeof(c) a2; \
		} __twin_key; \
		__builtin_memset(&__twin_key, 0, sizeof(__twin_key)); \
		__twin_set(__twin_key.a0, a); \
		__twin_set(__twin_key.a1, b); \
		__twin_set(__twin_key.a2, c); \
		__twin_key; \
	})
#define __twin_key4(a, b, c, d) \
	({ \
		struct { \
			__twin_typeof(a) a0; \
			__twin_typeof(b) a1; \
			__twin_typeof(c) a2; \
			__twin_typeof(d) a3; \
		} __twin_key; \
		__builtin_memset(&__twin_key, 0, sizeof(__twin_key)); \
		__twin_set(__twin_key.a0, a); \
		__twin_set(__twin_key.a1, b); \
		__twin_set(__twin_key.a2, c); \
		__twin_set(__twin_key.a3, d); \
		__twin_key; \
	})
#define KEY(...) __twin_join(__twin_key, __twin_count(__VA_ARGS__))(__VA_ARGS__)

/* Does `update` to `__twin_v`, the value of a key. */
#define __twin_at_key(map, set, update)                                                                            \
	({                                                                                                         \
		__typeof__(*(map)->key) __twin_to;                                                                        \
		const __typeof__(*(map)->value) __twin_zero = {};                                                         \
		__typeof__(*(map)->value) *__twin_v;                                                                     \
		__builtin_memset(&__twin_to, 0, sizeof(__twin_to));                                                              \
		set;                                                                                               \
		__twin_v = __twin_value(map, &__twin_to, &__twin_zero);                                                                \
		if (__twin_v) {                                                                                          \
			update;                                                                                    \
		}                                                                                                  \
		(void)0;                                                                                           \
	})
#define __twin_add_one __sync_fetch_and_add(__twin_v, 1)
#define __twin_count1(map) __twin_at_key(map, , __twin_add_one)
#define __twin_count2(map, k) __twin_at_key(map, __twin_set(__twin_to, k), __twin_add_one)
#define twinbpf_count(...) __twin_join(__twin_count, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_sum2(map, n) __twin_at_key(map, , __sync_fetch_and_add(__twin_v, n))
#define __twin_sum3(map, k, n) __twin_at_key(map, __twin_set(__twin_to, k), __sync_fetch_and_add(__twin_v, n))
#define twinbpf_sum(...) __twin_join(__twin_sum, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_add_both(kind, n)                                                                                   \
	__sync_fetch_and_add(&__twin_v->kind##_count, 1);                                                                \
	__sync_fetch_and_add(&__twin_v->kind##_total, n)
#define __twin_avg2(map, n) __twin_at_key(map, , __twin_add_both(avg, n))
#define __twin_avg3(map, k, n) __twin_at_key(map, __twin_set(__twin_to, k), __twin_add_both(avg, n))
#define twinbpf_avg(...) __twin_join(__twin_avg, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_stats2(map, n) __twin_at_key(map, , __twin_add_both(stats, n))
#define __twin_stats3(map, k, n) __twin_at_key(map, __twin_set(__twin_to, k), __twin_add_both(stats, n))
#define twinbpf_stats(...) __twin_join(__twin_stats, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_keep(kind, n, than)                                                                                 \
	__s64 __twin_n = (n);                                                                                         \
	if (!__twin_v->kind##_count || __twin_n than __twin_v->kind##_value)                                                      \
		__twin_v->kind##_value = __twin_n;                                                                          \
	__twin_v->kind##_count++
#define __twin_min2(map, n) __twin_at_key(map, , __twin_keep(min, n, <))
#define __twin_min3(map, k, n) __twin_at_key(map, __twin_set(__twin_to, k), __twin_keep(min, n, <))
#define twinbpf_min(...) __twin_join(__twin_min, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_max2(map, n) __twin_at_key(map, , __twin_keep(max, n, >))
#define __twin_max3(map, k, n) __twin_at_key(map, __twin_set(__twin_to, k), __twin_keep(max, n, >))
#define twinbpf_max(...) __twin_join(__twin_max, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_hist2(map, n) __twin_at_key(map, __twin_to = hist_slot(n), __twin_add_one)
#define __twin_hist3(map, k, n) __twin_at_key(map, __twin_set(__twin_to.key, k); __twin_to.slot = hist_slot(n), __twin_add_one)
#define twinbpf_hist(...) __twin_join(__twin_hist, __twin_count(__VA_ARGS__))(__VA_ARGS__)
#define __twin_lhist5(map, n, min, max, step) __twin_at_key(map, __twin_to = lhist_slot(n, min, max, step), __twin_add_one)
#define __twin_lhist6(map, k, n, min, max, step)                                                                   \
	__twin_at_key(map, __twin_set(__twin_to.key, k); __twin_to.slot = lhist_slot(n, min, max, step), __twin_add_one)
#define twinbpf_lhist(...) __twin_join(__twin_lhist, __twin_count(__VA_ARGS__))(__VA_ARGS__)

/* Values of MAP_HASH: `get` is 0 (or zeroes) for a key that is not there. */
#define twinbpf_set(map, k, v)                                                                                     \
	({                                                                                                         \
		__typeof__(*(map)->key) __twin_to;                                                                        \
		__typeof__(*(map)->value) __twin_new = (v);                                                             \
		__builtin_memset(&__twin_to, 0, sizeof(__twin_to));                                                              \
		__twin_set(__twin_to, k);                                                                                 \
		bpf_map_update_elem(map, &__twin_to, &__twin_new, BPF_ANY);                                                    \
	})
#define twinbpf_get(map, k)                                                                                        \
	({                                                                                                         \
		__typeof__(*(map)->key) __twin_to;                                                                        \
		__typeof__(*(map)->value) *__twin_v;                                                                     \
		__builtin_memset(&__twin_to, 0, sizeof(__twin_to));                                                              \
		__twin_set(__twin_to, k);                                                                                 \
		__twin_v = bpf_map_lookup_elem(map, &__twin_to);                                                                \
		__twin_v ? *__twin_v : (__typeof__(*(map)->value)){};                                                          \
	})
#define twinbpf_del(map, k)                                                                                        \
	({                                                                                                         \
		__typeof__(*(map)->key) __twin_to;                                                                        \
		__builtin_memset(&__twin_to, 0, sizeof(__twin_to));                                                              \
		__twin_set(__twin_to, k);                                                                                 \
		bpf_map_delete_elem(map, &__twin_to);                                                                     \
	})

/* `twinbpf run` compiles a source twice where an aggregation names a map that nothing declares: the first time with this,
 * when each notes the types of its key and value, and no map is used. */
#ifdef __TWIN_NOTE_MAPS
#define __twin_note(what, key_type, value_type)                                                                    \
	({                                                                                                         \
		static const struct {                                                                              \
			char text[sizeof(what)];                                                                   \
			key_type *key;                                                                             \
			value_type *value;                                                                         \
		} __twin_noted __attribute__((section(".rodata.twinnotes"), used)) = { what };                     \
		(void)0;                                                                                           \
	})
#define __twin_note1(kind, map, ...) __twin_note(kind " " map, void, void)
#define __twin_note2(kind, map, k, ...) __twin_note(kind " " map, __twin_typeof(k), void)
#undef twinbpf_count
#undef twinbpf_sum
#undef twinbpf_avg
#undef twinbpf_stats
#undef twinbpf_min
#undef twinbpf_max
#undef twinbpf_hist
#undef twinbpf_lhist
#undef twinbpf_set
#undef twinbpf_get
#undef twinbpf_del
#undef twinbpf_clear_map
#undef twinbpf_zero_map
#undef print_map
#undef print_hist
#undef print_lhist
#define twinbpf_count(map, ...) __twin_join(__twin_note, __twin_count(map, ##__VA_ARGS__))("COUNT", #map, ##__VA_ARGS__)
#define __twin_value2(kind, map, n) __twin_note(kind " " map, void, void)
#define __twin_value3(kind, map, k, n) __twin_note(kind " " map, __twin_typeof(k), void)
#define twinbpf_sum(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("SUM", #map, ##__VA_ARGS__)
#define twinbpf_avg(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("AVG", #map, ##__VA_ARGS__)
#define twinbpf_stats(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("STATS", #map, ##__VA_ARGS__)
#define twinbpf_min(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("MIN", #map, ##__VA_ARGS__)
#define twinbpf_max(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("MAX", #map, ##__VA_ARGS__)
#define twinbpf_hist(map, ...) __twin_join(__twin_value, __twin_count(map, ##__VA_ARGS__))("HIST", #map, ##__VA_ARGS__)
#define __twin_steps5(map, n, min, max, step)                                                                      \
	__twin_note("LHIST " map " " #min " " #max " " #step, void, void)
#define __twin_steps6(map, k, n, min, max, step)                                                                   \
	__twin_note("LHIST " map " " #min " " #max " " #step, __twin_typeof(k), void)
#define twinbpf_lhist(map, ...) __twin_join(__twin_steps, __twin_count(map, ##__VA_ARGS__))(#map, ##__VA_ARGS__)
#define twinbpf_set(map, k, v) ({ __twin_note("HASH " #map, __twin_typeof(k), __twin_typeof(v)); 0L; })
#define twinbpf_get(map, k) ((void)(k), 0ULL)
#define twinbpf_del(map, k) ((void)(k), 0L)
#define twinbpf_clear_map(map) ((void)0)
#define twinbpf_zero_map(map) ((void)0)
#define print_map(map, ...) ((void)0)
#define print_hist(map) ((void)0)
#define print_lhist(map, ...) ((void)0)
#endif

/* ---- Tracepoints and system calls ------------------------------------------------------------------------------ */

/*
 * Programs with the arguments of their event, which are fields of `args`. `twinbpf run` makes the structs from the running
 * kernel's list of events.
 *
 *     TP(sched, sched_switch) { printf("%s\n", args->prev_comm); return 0; }
 *     TP(sched, sched_process_exec) { printf("%s\n", data(filename)); return 0; }
 *     SYSCALL(openat, filename, flags) { printf("%s %#x\n", filename, flags); return 0; }
 *     SYSCALL_RET(openat, ret) { count(&results, ret); return 0; }
 */
#define TP_NAMED(program, category, name)                                                                          \
	SEC("tp/" #category "/" #name) int program(struct tp_##category##_##name *args)
#define TP(category, name) TP_NAMED(category##_##name, category, name)
/* A string whose place is in a field (`__data_loc` in the event's format). */
#define twinbpf_data(name) twinbpf_str((const char *)args + (args->__data_loc_##name & 0xffff))

#define __twin_params1(n, x) , __typeof__(((struct tp_syscalls_sys_enter_##n *)0)->x) x
#define __twin_params2(n, x, ...) __twin_params1(n, x) __twin_params1(n, __VA_ARGS__)
#define __twin_params3(n, x, ...) __twin_params1(n, x) __twin_params2(n, __VA_ARGS__)
#define __twin_params4(n, x, ...) __twin_params1(n, x) __twin_params3(n, __VA_ARGS__)
#define __twin_params5(n, x, ...) __twin_params1(n, x) __twin_params4(n, __VA_ARGS__)
#define __twin_params6(n, x, ...) __twin_params1(n, x) __twin_params5(n, __VA_ARGS__)
#define __twin_params0(n)
#define __twin_fields(x) , args->x
#define SYSCALL(name, ...)                                                                                         \
	static __always_inline int __twin_enter_##name(struct tp_syscalls_sys_enter_##name *args                   \
						       __twin_join(__twin_params, __twin_count(__VA_ARGS__))(name, ##__VA_ARGS__)); \
	SEC("tp/syscalls/sys_enter_" #name) int sys_enter_##name(struct tp_syscalls_sys_enter_##name *args)        \
	{                                                                                                          \
		return __twin_enter_##name(args __twin_each(__twin_fields, ##__VA_ARGS__));                        \
	}                                                                                                          \
	static __always_inline int __twin_enter_##name(struct tp_syscalls_sys_enter_##name *args                   \
						       __twin_join(__twin_params, __twin_count(__VA_ARGS__))(name, ##__VA_ARGS__))
#define SYSCALL_RET(name, ret)                                                                                     \
	static __always_inline int __twin_exit_##name(struct tp_syscalls_sys_exit_##name *args, long ret);         \
	SEC("tp/syscalls/sys_exit_" #name) int sys_exit_##name(struct tp_syscalls_sys_exit_##name *args)           \
	{                                                                                                          \
		return __twin_exit_##name(args, args->ret);                                                        \
	}                                                                                                          \
	static __always_inline int __twin_exit_##name(struct tp_syscalls_sys_exit_##name *args, long ret)

/* ---- Short names ---------------------------------------------------------------------------------------------- */

#ifndef TWINBPF_PLAIN
#define clear(map) twinbpf_clear_map(map)
#define zero(map) twinbpf_zero_map(map)
#define data(name) twinbpf_data(name)
#define str(p) twinbpf_str(p)
#define ustr(p) twinbpf_ustr(p)
#define kstack(ctx) twinbpf_kstack(ctx)
#define ntop(family, p) twinbpf_ntop(family, p)
#define join(list) twinbpf_join(list)
#define comm() (twinbpf_comm().text)
#define pid() twinbpf_pid()
#define tid() twinbpf_tid()
#define uid() twinbpf_uid()
#define gid() twinbpf_gid()
#define cpu() twinbpf_cpu()
#define nsecs() twinbpf_nsecs()
#define elapsed() twinbpf_elapsed()
#define is_self() twinbpf_is_self()
#define probe() twinbpf_probe()
#define count(...) twinbpf_count(__VA_ARGS__)
#define sum(...) twinbpf_sum(__VA_ARGS__)
#define avg(...) twinbpf_avg(__VA_ARGS__)
#define stats(...) twinbpf_stats(__VA_ARGS__)
#define min(...) twinbpf_min(__VA_ARGS__)
#define max(...) twinbpf_max(__VA_ARGS__)
#define hist(...) twinbpf_hist(__VA_ARGS__)
#define lhist(...) twinbpf_lhist(__VA_ARGS__)
#define set(map, key, value) twinbpf_set(map, key, value)
#define get(map, key) twinbpf_get(map, key)
#define del(map, key) twinbpf_del(map, key)
#endif

#endif
#endif

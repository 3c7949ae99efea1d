/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The macros of programs that perf once loaded (its include/bpf/bpf.h), for sources that have them:
 *
 *     #include <twinbpf/perf.h>
 *
 *     int probe(vfs_read, count)(void *ctx, int err, unsigned long count)
 *     {
 *             ...
 *     }
 *
 *     int syscall_enter(openat)(void *args)
 *     {
 *             ...
 *     }
 *
 *     license(GPL);
 *
 * Where <twinbpf/trace.h> is included before it, its `probe()` is `twinbpf_probe()`.
 */
#ifndef TWINBPF_PERF_H
#define TWINBPF_PERF_H

#include <twinbpf/script.h>

#undef probe
/* A function of the kernel, with arguments separated by blanks. */
#define probe(function, vars) SEC(#function "=" #function " " #vars) function
/* The beginning of a system call. */
#define syscall_enter(name) SEC("syscalls:sys_enter_" #name) syscall_enter_##name
#define license(name) char _license[] SEC("license") = #name

#endif

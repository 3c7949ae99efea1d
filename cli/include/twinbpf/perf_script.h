/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Scripts over a recording of perf: `twinbpf script tool.bpf.c -i perf.data`.
 *
 *     #include <twinbpf/perf_script.h>
 *
 *     int EVENT(struct sample *s, u64 size)
 *     {
 *             printf("%s %d\n", s->comm, s->tid);
 *             return 1;               // 0 drops the sample: perf does not print it
 *     }
 *
 * `SEC("EVENT/sched:sched_switch")` gets the samples of one event. EARLY gets them before perf's own options choose. TIMER
 * goes by the times of samples.
 *
 * `s->raw` is a struct of the event's fields. A program names those that it reads, with types of their kind, and CO-RE finds
 * where the recording has them:
 *
 *     struct trace_event_raw_sched_switch {
 *             s32 next_pid;
 *             char next_comm[16];
 *     } RECORDED;
 *
 *     SEC("EVENT/sched:sched_switch") int on_switch(struct sample *s, u64 size)
 *     {
 *             const struct trace_event_raw_sched_switch *e = s->raw;
 *             ... e->next_pid ...
 *
 * `__data_loc_NAME` is a u32: the text's offset in its low half, its size in the high one; sample_field_str() has the text.
 */
#ifndef TWINBPF_PERF_SCRIPT_H
#define TWINBPF_PERF_SCRIPT_H

#include <twinbpf/script.h>

#define RECORDED __attribute__((preserve_access_index))

/* A branch, as `struct perf_branch_entry` of <linux/perf_event.h> has it. */
struct sample_branch {
	u64 from, to, flags;
};

/* A sample. What perf did not record is 0. Pointers are valid until EVENT returns. */
struct sample {
	const char *event;                    /* its name, as perf script prints it */
	const void *raw;                      /* the record of a tracepoint */
	const u64 *callchain;                 /* addresses, the innermost first */
	const struct sample_branch *branches; /* the latest first */
	u32 raw_size;                         /* bytes */
	u32 callchain_nr;
	u32 branch_nr;
	s32 cpu;
	s32 pid, tid;
	char comm[16]; /* of the thread */
	u64 time;      /* nanoseconds */
	u64 ip;
	u64 addr;
	u64 id, stream_id;
	u64 period;
	u64 weight;
	u64 transaction;
	u64 insn_cnt, cyc_cnt;
	u64 data_src;
	u64 phys_addr;
	u64 data_page_size, code_page_size;
	u64 cgroup;
	u32 flags; /* PERF_DLFILTER_FLAG_* */
	s32 machine_pid, vcpu;
	u16 ins_lat, p_stage_cyc;
	u16 misc;
	u8 cpumode;
	u8 addr_correlates_sym;
	u32 : 32;
};

/* Texts are written as snprintf does, and their length is returned. */

/* The function at an address of the sample's process or of the kernel, else the address as a number; its offset in the
 * function, or -1; the file, or an empty text. */
extern int sample_sym(u64 address, char *buf, u64 size) __ksym __weak;
extern s64 sample_symoff(u64 address) __ksym __weak;
extern int sample_dso(u64 address, char *buf, u64 size) __ksym __weak;
/* `FILE:LINE` of the sample's ip, or an empty text. */
extern int sample_srcline(char *buf, u64 size) __ksym __weak;
/* The call chain in one text from the outermost function, `main;work;read`. */
extern int sample_stack(char *buf, u64 size) __ksym __weak;
/* Prints the call chain, a line for each frame; returns their number. */
extern int print_callchain(void) __ksym __weak;
/* A field of a tracepoint, by its name in the recording's format: an integer, and a text. One that is not there ends the
 * script. */
extern s64 sample_field(const char *name) __ksym __weak;
extern int sample_field_str(const char *name, char *buf, u64 size) __ksym __weak;

#endif

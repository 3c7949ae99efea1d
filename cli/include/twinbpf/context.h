/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a C program needs that calls BPF programs compiled ahead of time.
 *
 *     twinbpf compile sum.bpf.o --trust -o sum.o
 *     cc main.c sum.o -o sum
 *
 * Each program of the object is a function of its own name that takes a context and gives r0:
 *
 *     #include <stdio.h>
 *     #include <twinbpf/context.h>
 *
 *     TWINBPF_PROGRAM(sum);
 *
 *     int main(void)
 *     {
 *             static unsigned char stack[64 * 1024];
 *             uint64_t numbers[] = { 3, 1, 2, 3 };
 *             struct twinbpf_context cx;
 *
 *             twinbpf_init(&cx, stack, sizeof(stack), TWINBPF_FRAME);
 *             cx.regs[1] = (uintptr_t)numbers;
 *             printf("%llu\n", (unsigned long long)sum(&cx));
 *             return 0;
 *     }
 *
 * A context serves one thread at a time, and any number of calls one after another.
 *
 * Memory. With `--trust` pointers are what C has. Otherwise only the low 32 bits of a pointer count, and
 * `arena_base` is put in front: all that the program works on, the stack too, must then lie in the one block of 4 GiB
 * that begins there. twinbpf_init() takes the block the stack is in. The program can reach everything in that block;
 * a sandbox is only what you make it by mapping 4 GiB for the program alone, with PROT_NONE where nothing is.
 *
 * Traps. A bad pointer is a SIGSEGV or SIGBUS at the access. Everything else that ends a program under `twinbpf run`
 * (no room for a frame, a host function without success) is an instruction that traps: SIGILL, on some
 * machines SIGTRAP. Handle the signal, or let the process end. A host function may also leave with longjmp().
 *
 * Maps, data, host functions. Code finds them by number; `readelf -p .data.rel.ro x.o` (or `strings`) tells which number
 * is what: `value 0 = data .rodata+16`, `host 0 = printf`. Programs without any of them need nothing else from here.
 */
#ifndef TWINBPF_CONTEXT_H
#define TWINBPF_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Stack bytes of a BPF function, unless the object was compiled with --stack-size. */
#define TWINBPF_FRAME 512

/* Bytes from one function's address to the next, as programs see them. */
#define TWINBPF_SLOT 32

struct twinbpf_context;

/* What a host function gives: r0, and a status that is not zero when the program cannot go on. */
struct twinbpf_pair {
	uint64_t value;
	uint64_t status;
};

/*
 * A host function: `code` is called as
 *
 *     struct twinbpf_pair code(void *env, struct twinbpf_context *cx, uint64_t r1, ...)
 *
 * with as many of r1 to r5 as the function has parameters, five if it takes more than is declared (`...`).
 */
struct twinbpf_host {
	const void *code;
	const void *env;
};

/*
 * For what code does not do itself. A program without tail calls, calls of computed addresses and legacy packet loads
 * that was compiled without --fuel calls none of them as long as `native_limit` is 0. Status 0 is success, 1 a failure that the program sees, the rest
 * ends it.
 */
struct twinbpf_services {
	/* Value: address of code in the calling convention of the object's inside. */
	struct twinbpf_pair (*tail_call)(struct twinbpf_context *cx, uint64_t ctx, uint64_t map, uint64_t index);
	/* Arguments are in `regs`. */
	struct twinbpf_pair (*call)(struct twinbpf_context *cx, uint64_t address);
	/* Never called by code compiled ahead of time. */
	struct twinbpf_pair (*interpret)(struct twinbpf_context *cx, uint64_t function);
	struct twinbpf_pair (*load_packet)(struct twinbpf_context *cx, uint64_t offset, uint64_t bytes);
	/* The budget of instructions is about to end, or the native stack (`native_limit`). */
	struct twinbpf_pair (*resume)(struct twinbpf_context *cx, uint64_t pc);
};

struct twinbpf_context {
	/* r1 to r5: the arguments. r10: the end of the first frame of the BPF stack. */
	uint64_t regs[11];
	uint64_t loops;
	/* First byte of the 4 GiB that the program works in; not used with --trust. */
	uint64_t arena_base;
	/* End of the BPF stack: no frame of a called BPF function may end behind it. */
	uint64_t frame_limit;
	/* Instructions left, if compiled with --fuel. */
	int64_t remaining;
	/* Addresses of inner functions, for calls of computed addresses. */
	const uint64_t *functions;
	/* Host functions, by number. */
	const struct twinbpf_host *hosts;
	/* Addresses of maps, data and functions, by number. */
	const uint64_t *values;
	/* What the program takes for addresses of its functions: this and the following, TWINBPF_SLOT bytes apart. */
	uint64_t slots;
	uint64_t slot_count;
	const struct twinbpf_services *services;
	/* Read after some calls: a byte that is not zero when the run shall end. */
	const uint8_t *interrupt;
	/* Where the program is, while a host function runs: native frame pointer, r10, instruction. */
	uint64_t exit_fp;
	uint64_t exit_frame;
	uint32_t exit_pc;
	uint32_t in_c;
	uint32_t target;
	/* Bytes of all frames, and the most there may be; kept only if frames have different sizes. */
	uint32_t stack_used;
	uint32_t stack_limit;
	/* The address that a check has refused, before the instruction that traps. */
	uint64_t refused;
	/* The address from which the native stack is for functions with small frames only; 0 for no such limit. A function
	 * whose frame takes more than 4 KiB (64 KiB at most) calls `resume` instead of going on below it. */
	uint64_t native_limit;
};

/* Declares a compiled program. */
#ifdef __cplusplus
#define TWINBPF_PROGRAM(name) extern "C" uint64_t name(struct twinbpf_context *)
#else
#define TWINBPF_PROGRAM(name) uint64_t name(struct twinbpf_context *)
#endif

/* Makes a context ready for programs, with a BPF stack and the size of its frames. */
static inline void twinbpf_init(struct twinbpf_context *cx, void *stack, size_t bytes, uint32_t frame)
{
	static const uint8_t never = 0;

	memset(cx, 0, sizeof(*cx));
	cx->regs[10] = (((uintptr_t)stack + 15) & ~(uint64_t)15) + frame;
	cx->frame_limit = (uintptr_t)stack + bytes;
	cx->arena_base = (uintptr_t)stack & ~(uint64_t)UINT32_MAX;
	cx->interrupt = &never;
	cx->stack_used = frame;
	cx->stack_limit = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

#endif

// Functions to hook. Compiled with each kind of preparation.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <ucontext.h>
#include <execinfo.h>

#define HOOKED __attribute__((noinline, noclone, noipa))
#ifndef __GNUC__
#error
#endif
#ifdef __clang__
#undef HOOKED
#define HOOKED __attribute__((noinline, optnone))
#endif

HOOKED long add(long a, long b) { return a + b; }
HOOKED long other(long a) { return 3 * a + 1; }
HOOKED long nine(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}
HOOKED double scale(double a, float b, double c) { return a * b + c; }
typedef double __attribute__((vector_size(32))) wide;
HOOKED __attribute__((target("avx"))) void add_wide(wide *to, wide a, wide b);
void add_wide(wide *to, wide a, wide b) { *to = a + b; }
__attribute__((target("avx"))) double call_wide(double start) {
    wide a = {start, start + 1, start + 2, start + 3}, b = {1, 2, 3, 4}, to;
    add_wide(&to, a, b);
    return to[0] + to[1] + to[2] + to[3];
}
#ifdef WIDE
typedef double __attribute__((vector_size(64))) widest;
HOOKED __attribute__((target("avx512f"))) void add_widest(widest *to, widest a, widest b);
void add_widest(widest *to, widest a, widest b) { *to = a + b; }
__attribute__((target("avx512f"))) double call_widest(double start) {
    widest a = {start, 1, 2, 3, 4, 5, 6, start + 7}, b = {1, 2, 3, 4, 5, 6, 7, start}, to;
    add_widest(&to, a, b);
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum = sum * 3 + to[i];
    return sum;
}
#endif
struct big { long a, b, c, d; };
HOOKED struct big big(long a) { struct big it = {a, a + 1, a + 2, a + 3}; return it; }
long call_big(long a) { struct big it = big(a); return it.a + it.b + it.c + it.d; }
HOOKED long sum(int count, ...) {
    va_list list;
    va_start(list, count);
    double total = 0;
    while (count-- > 0)
        total += va_arg(list, double);
    va_end(list);
    return (long)total;
}
long call_sum(void) { return sum(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.); }
// Calls itself, whatever compilers make of recursion.
long fact(long n);
long (*volatile itself)(long) = fact;
HOOKED long fact(long n) { return n <= 1 ? 1 : n * itself(n - 1); }
HOOKED long depth(long n) { volatile long keep = n; return n == 0 ? 0 : 1 + depth(n - 1) + (keep - n); }
// A leaf, with values below the stack pointer.
HOOKED long red_zone(long a) {
    volatile long values[8];
    for (int i = 0; i < 8; i++)
        values[i] = a * i;
    return values[1] + values[3] + values[7];
}
// Copies from the end, with the direction flag set.
HOOKED long backwards(long a) {
    long from[2] = {a, a + 1}, to[2] = {0, 0}, count = 16;
    char *source = (char *)from + 15, *target = (char *)to + 15;
    __asm__ volatile("std\nmov %0, %0\nrep movsb\nlea (%0), %0\ncld" : "+c"(count), "+S"(source), "+D"(target) : : "memory", "cc");
    return to[0] * 3 + to[1];
}
// Cases by a table, at least where it is not optimised.
HOOKED long cases(long a) {
    switch (a) {
    case 0: return 7;
    case 1: return add(a, 2);
    case 2: return 5 * a;
    case 3: return 0;
    case 4: return a - 9;
    case 5: return add(a, a);
    case 6: return 1;
    default: return a;
    }
}
HOOKED long last(long a) { return a + 7; }
// Ends in a jump to another function.
__attribute__((noinline)) long tail(long a) { return last(a * 2); }
HOOKED int fails(void) { errno = ENOTTY; return -1; }
int errno_after(void) { errno = 0; fails(); return errno; }
int errno_kept(long a) { errno = EXDEV; add(a, 1); return errno; }

static __thread jmp_buf place;
HOOKED long jumps(long n) { if (n == 0) longjmp(place, 42); return jumps(n - 1) + 1; }
long call_jumps(long n) { int got = setjmp(place); return got ? got : jumps(n); }

HOOKED void *ends(void *argument) { if (argument) pthread_exit(argument); return argument; }
long thread_ends(long value) {
    pthread_t thread;
    void *result = 0;
    pthread_create(&thread, NULL, ends, (void *)value);
    pthread_join(thread, &result);
    return (long)result;
}

static __thread ucontext_t host, coroutine;
static __thread long produced;
HOOKED void yields(long value) { produced = value; swapcontext(&coroutine, &host); }
HOOKED void runs(void) { for (long i = 1; i <= 3; i++) yields(i * 10); }
long coroutines(void) {
    static __thread char stack[64 * 1024];
    long total = 0;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = sizeof stack;
    coroutine.uc_link = &host;
    makecontext(&coroutine, runs, 0);
    for (int i = 0; i < 4; i++) {
        produced = 0;
        swapcontext(&host, &coroutine);
        total += add(produced, i);
    }
    return total;
}

HOOKED long frames(void) { void *all[64]; return backtrace(all, 64); }
HOOKED long around(long n) { return n == 0 ? frames() : around(n - 1) + 0 * n; }

// Loads registers with what no callback may change, calls `add`, and compares. 0, or the bit of the first that differs.
__attribute__((noinline)) long registers(void) {
    long wrong;
    __asm__ volatile(
        "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n"
        "sub $8, %%rsp\n"
        "mov $3, %%rdi; mov $4, %%rsi; mov $0x11, %%rdx; mov $0x12, %%rcx; mov $0x13, %%r8; mov $0x14, %%r9\n"
        "mov $0x15, %%r10; mov $0x16, %%r11; mov $0x17, %%rbx; mov $0x18, %%rbp; mov $0x19, %%r12\n"
        "mov $0x1a, %%r13; mov $0x1b, %%r14; mov $0x1c, %%r15\n"
        "movq %%rdx, %%xmm0; movq %%rcx, %%xmm7; movq %%r8, %%xmm8; movq %%r9, %%xmm15\n"
        "call add@PLT\n"
        "cmp $7, %%rax; mov $1, %%eax; jne 1f\n"
        "cmp $0x11, %%rdx; mov $2, %%eax; jne 1f\n"
        "cmp $0x12, %%rcx; mov $3, %%eax; jne 1f\n"
        "cmp $0x13, %%r8; mov $4, %%eax; jne 1f\n"
        "cmp $0x14, %%r9; mov $5, %%eax; jne 1f\n"
        "cmp $0x15, %%r10; mov $6, %%eax; jne 1f\n"
        "cmp $0x17, %%rbx; mov $7, %%eax; jne 1f\n"
        "cmp $0x18, %%rbp; mov $8, %%eax; jne 1f\n"
        "cmp $0x19, %%r12; mov $9, %%eax; jne 1f\n"
        "cmp $0x1a, %%r13; mov $10, %%eax; jne 1f\n"
        "cmp $0x1b, %%r14; mov $11, %%eax; jne 1f\n"
        "cmp $0x1c, %%r15; mov $12, %%eax; jne 1f\n"
        "movq %%xmm0, %%rdx; cmp $0x11, %%rdx; mov $13, %%eax; jne 1f\n"
        "movq %%xmm7, %%rdx; cmp $0x12, %%rdx; mov $14, %%eax; jne 1f\n"
        "movq %%xmm8, %%rdx; cmp $0x13, %%rdx; mov $15, %%eax; jne 1f\n"
        "movq %%xmm15, %%rdx; cmp $0x14, %%rdx; mov $16, %%eax; jne 1f\n"
        "xor %%eax, %%eax\n"
        "1: add $8, %%rsp\n"
        "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n"
        : "=a"(wrong)
        :
        : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm7", "xmm8", "xmm15");
    return wrong;
}

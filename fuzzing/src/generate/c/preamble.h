/* What generated programs share. For BPF the entry is a program; elsewhere main reads worlds and writes what becomes of
 * them. Everything is defined with -fwrapv: shift counts are masked, divisors checked. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

struct world {
	volatile u64 in[16];
	u64 out[16];
};

#if defined(__bpf__) && !defined(__BPF_FEATURE_SDIV_SMOD)
/* The instruction set has no signed division: by unsigned ones. */
static inline u64 magnitude(s64 a) { return a < 0 ? -(u64)a : (u64)a; }
static inline s64 divide(s64 a, s64 b) { u64 q = magnitude(a) / magnitude(b); return (s64)((a < 0) != (b < 0) ? -q : q); }
static inline s64 modulo(s64 a, s64 b) { u64 r = magnitude(a) % magnitude(b); return (s64)(a < 0 ? -r : r); }
#define SIGNED(T) \
	static inline T div_##T(T a, T b) { return b == 0 ? 0 : (T)divide(a, b); } \
	static inline T mod_##T(T a, T b) { return b == 0 ? a : (T)modulo(a, b); }
#else
#define SIGNED(T) \
	static inline T div_##T(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)-a : (T)(a / b); } \
	static inline T mod_##T(T a, T b) { return b == 0 ? a : b == -1 ? 0 : (T)(a % b); }
#endif
#define UNSIGNED(T) \
	static inline T div_##T(T a, T b) { return b == 0 ? 0 : a / b; } \
	static inline T mod_##T(T a, T b) { return b == 0 ? a : a % b; }
SIGNED(s8) SIGNED(s16) SIGNED(s32) SIGNED(s64)
UNSIGNED(u8) UNSIGNED(u16) UNSIGNED(u32) UNSIGNED(u64)

/* Atomics that give the old value begin with v3. */
#if defined(__bpf__) && !defined(__BPF_FEATURE_ALU32)
#define FETCH(T, name, op) static inline T name##_##T(T *at, T with) { T old = *at; *at = old op with; return old; }
#define SWAP(T) \
	static inline T xchg_##T(T *at, T with) { T old = *at; *at = with; return old; } \
	static inline T cas_##T(T *at, T was, T with) { T old = *at; if (old == was) *at = with; return old; }
#else
#define FETCH(T, name, op) static inline T name##_##T(T *at, T with) { return __sync_fetch_and_##name(at, with); }
#define SWAP(T) \
	static inline T xchg_##T(T *at, T with) { return __sync_lock_test_and_set(at, with); } \
	static inline T cas_##T(T *at, T was, T with) { return __sync_val_compare_and_swap(at, was, with); }
#endif
#define ATOMICS(T) FETCH(T, add, +) FETCH(T, or, |) FETCH(T, and, &) FETCH(T, xor, ^) SWAP(T)
ATOMICS(s32) ATOMICS(s64) ATOMICS(u32) ATOMICS(u64)

#define OUTLINE static __attribute__((noinline))
#ifdef __bpf__
#define ENTRY __attribute__((section("syscall"), used))
#else
#define ENTRY static __attribute__((noinline))
static u64 entry(struct world *w);
extern long read(int, void *, unsigned long), write(int, const void *, unsigned long);
int main(void)
{
	static struct { struct world world; u64 returned; } run;
	while (read(0, &run.world, sizeof(run.world)) == sizeof(run.world)) {
		run.returned = entry(&run.world);
		if (write(1, &run, sizeof(run)) != sizeof(run))
			return 1;
	}
	return 0;
}
#endif

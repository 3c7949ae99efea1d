// build: -mcpu=v4
// Instructions of the fourth version: signed division, sign-extending moves and loads, byte swaps, long jumps.
#include <twinbpf/script.h>

volatile __s64 wide = -100;
volatile __s32 narrow = -7;
volatile __s16 half = -2;
volatile __s8 tiny = -128;
volatile __u64 bytes = 0x0102030405060708ULL;

static __noinline __s64 divide(__s64 a, __s64 b)
{
	return a / b;
}

static __noinline __s32 modulo(__s32 a, __s32 b)
{
	return a % b;
}

static __noinline __s64 low_byte(__u64 x)
{
	return (__s8)x;
}

static __noinline __s64 low_half(__u64 x)
{
	return (__s16)x;
}

static __noinline __s64 low_word(__u64 x)
{
	return (__s32)x;
}

int BEGIN(void)
{
	printf("%lld %lld\n", divide(wide, 7), divide(wide, -7));
	printf("%d %d\n", modulo(narrow, 3), modulo(-narrow, -3));
	printf("%lld %d %d %d\n", wide, narrow, half, tiny);
	printf("%lld %lld %lld\n", low_byte(0x80 + bytes * 0), low_half(bytes | 0xff00), low_word(bytes | 0x80000000));
	printf("%lx %x %x\n", __builtin_bswap64(bytes), __builtin_bswap32(bytes), __builtin_bswap16(bytes));
	return 0;
}

LICENSE("GPL");

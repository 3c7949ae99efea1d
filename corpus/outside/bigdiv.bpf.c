// Division of big integers by Knuth's algorithm D (The Art of Computer Programming, 4.3.1), with digits of 32 bits: len dividends of
// 48 digits, each with a divisor of 1 to 16 digits after it. A digest of quotients and remainders.
// build: -fno-builtin
#include "outside.h"

#define DIVIDEND 48
#define DIVISOR 16

struct state {
	u32 u[DIVIDEND + 1], v[DIVISOR];
	u32 quotient[DIVIDEND], remainder[DIVISOR];
};

static u32 leading_zeros(u32 x)
{
	u32 n = 0;

	for (; !(x & 0x80000000); x <<= 1)
		n++;
	return n;
}

static u32 divide_short(u32 *quotient, const u32 *u, u32 m, u32 v)
{
	u64 rest = 0;

	while (m-- > 0) {
		rest = rest << 32 | u[m];
		quotient[m] = rest / v;
		rest %= v;
	}
	return rest;
}

/* The digit of the quotient by the first three of the dividend and the first two of the divisor, or one more than it. */
static u32 guess(const u32 *u, const u32 *v, u32 n)
{
	u64 top = (u64)u[n] << 32 | u[n - 1];
	u64 digit = top / v[n - 1], rest = top % v[n - 1];

	while (digit >> 32 || digit * v[n - 2] > (rest << 32 | u[n - 2])) {
		digit--;
		rest += v[n - 1];
		if (rest >> 32)
			break;
	}
	return digit;
}

/* Takes v, digit times, from u; whether that was too much. */
static int subtract(u32 *u, const u32 *v, u32 n, u32 digit)
{
	u64 carry = 0, borrow = 0, difference;
	u32 i;

	for (i = 0; i < n; i++) {
		u64 product = (u64)digit * v[i] + carry;

		difference = (u64)u[i] - (u32)product - borrow;
		u[i] = difference;
		carry = product >> 32;
		borrow = difference >> 63;
	}
	difference = (u64)u[n] - carry - borrow;
	u[n] = difference;
	return difference >> 63;
}

static void add_back(u32 *u, const u32 *v, u32 n)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		sum += (u64)u[i] + v[i];
		u[i] = sum;
		sum >>= 32;
	}
	u[n] += sum;
}

static void divide(struct state *s, const u32 *dividend, const u32 *divisor, u32 n)
{
	u32 shift = leading_zeros(divisor[n - 1]), digit, i, j;

	s->u[DIVIDEND] = (u64)dividend[DIVIDEND - 1] >> (32 - shift);
	for (i = DIVIDEND - 1; i > 0; i--)
		s->u[i] = dividend[i] << shift | (u64)dividend[i - 1] >> (32 - shift);
	s->u[0] = dividend[0] << shift;
	for (i = n - 1; i > 0; i--)
		s->v[i] = divisor[i] << shift | (u64)divisor[i - 1] >> (32 - shift);
	s->v[0] = divisor[0] << shift;
	for (j = DIVIDEND - n + 1; j-- > 0;) {
		digit = guess(s->u + j, s->v, n);
		if (subtract(s->u + j, s->v, n, digit)) {
			digit--;
			add_back(s->u + j, s->v, n);
		}
		s->quotient[j] = digit;
	}
	for (i = 0; i < n; i++)
		s->remainder[i] = s->u[i] >> shift | (u64)s->u[i + 1] << (32 - shift);
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	const u32 *dividend = block->input32;
	u64 result = 0;

	for (u32 i = 0; i < block->len; i++, dividend += DIVIDEND + DIVISOR) {
		const u32 *divisor = dividend + DIVIDEND;
		u32 n = 1 + i % DIVISOR;

		while (n > 1 && !divisor[n - 1])
			n--;
		memset(s->quotient, 0, sizeof(s->quotient));
		memset(s->remainder, 0, sizeof(s->remainder));
		if (n > 1)
			divide(s, dividend, divisor, n);
		else if (divisor[0])
			s->remainder[0] = divide_short(s->quotient, dividend, DIVIDEND, divisor[0]);
		for (u32 at = 0; at < DIVIDEND; at++)
			result = result * 31 + s->quotient[at];
		for (u32 at = 0; at < DIVISOR; at++)
			result = result * 31 + s->remainder[at];
	}
	return result;
}

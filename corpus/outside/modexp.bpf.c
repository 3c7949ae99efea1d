// Numbers of 512 bits to the power of 65537 modulo another, by Montgomery multiplication with limbs of 32 bits; the modulus is
// the first 64 bytes of the input, made odd, the len bases follow.
// build: -fno-builtin -mllvm -bpf-stack-size=1024
#include "outside.h"

#define LIMBS 16

static u32 negative_inverse(u32 n)
{
	u32 x = n;

	for (int i = 0; i < 4; i++)
		x *= 2 - n * x;
	return -x;
}

static int less(const u32 *a, const u32 *b)
{
	for (int i = LIMBS - 1; i >= 0; i--)
		if (a[i] != b[i])
			return a[i] < b[i];
	return 0;
}

static u32 subtract(u32 *a, const u32 *b)
{
	u64 borrow = 0;

	for (int i = 0; i < LIMBS; i++) {
		u64 d = (u64)a[i] - b[i] - borrow;

		a[i] = d;
		borrow = d >> 63;
	}
	return borrow;
}

/* product = a * b / 2^512 modulo n */
static void multiply(u32 *product, const u32 *a, const u32 *b, const u32 *n, u32 inverse)
{
	u32 t[LIMBS + 2] = { 0 };

	for (int i = 0; i < LIMBS; i++) {
		u64 carry = 0, sum;
		u32 m;

		for (int j = 0; j < LIMBS; j++) {
			sum = (u64)a[j] * b[i] + t[j] + carry;
			t[j] = sum;
			carry = sum >> 32;
		}
		sum = t[LIMBS] + carry;
		t[LIMBS] = sum;
		t[LIMBS + 1] = sum >> 32;
		m = t[0] * inverse;
		carry = ((u64)m * n[0] + t[0]) >> 32;
		for (int j = 1; j < LIMBS; j++) {
			sum = (u64)m * n[j] + t[j] + carry;
			t[j - 1] = sum;
			carry = sum >> 32;
		}
		sum = t[LIMBS] + carry;
		t[LIMBS - 1] = sum;
		t[LIMBS] = t[LIMBS + 1] + (sum >> 32);
	}
	if (t[LIMBS] || !less(t, n))
		subtract(t, n);
	memcpy(product, t, 4 * LIMBS);
}

/* 2^1024 modulo n, by doubling */
static void squared_radix(u32 *r, const u32 *n)
{
	memset(r, 0, 4 * LIMBS);
	r[0] = 1;
	for (int i = 0; i < 64 * LIMBS; i++) {
		u32 high = r[LIMBS - 1] >> 31;

		for (int j = LIMBS - 1; j > 0; j--)
			r[j] = r[j] << 1 | r[j - 1] >> 31;
		r[0] <<= 1;
		if (high || !less(r, n))
			subtract(r, n);
	}
}

WORKLOAD u64 prog(struct block *block)
{
	u32 *n = block->scratch32, *radix = n + LIMBS, *x = radix + LIMBS, *y = x + LIMBS, *one = y + LIMBS, inverse, i;
	u64 result = 0;

	memcpy(n, block->input, 4 * LIMBS);
	n[0] |= 1;
	n[LIMBS - 1] |= 1u << 31;
	inverse = negative_inverse(n[0]);
	squared_radix(radix, n);
	memset(one, 0, 4 * LIMBS);
	one[0] = 1;
	for (i = 0; i < block->len; i++) {
		memcpy(x, block->input32 + LIMBS * (1 + i), 4 * LIMBS);
		multiply(x, x, radix, n, inverse);
		memcpy(y, x, 4 * LIMBS);
		for (int bit = 0; bit < 16; bit++)
			multiply(y, y, y, n, inverse);
		multiply(y, y, x, n, inverse);
		multiply(y, y, one, n, inverse);
		result = result * 31 + (y[0] | (u64)y[1] << 32);
	}
	return result;
}

// Factorials of big numbers: len! in limbs of nine decimal digits, then its digits added up.
// build: -fno-builtin
#include "outside.h"

#define BASE 1000000000

struct number {
	u32 len;
	u32 limb[4096];
};

static void multiply(struct number *n, u32 by)
{
	u64 carry = 0;

	for (u32 i = 0; i < n->len; i++) {
		carry += (u64)n->limb[i] * by;
		n->limb[i] = carry % BASE;
		carry /= BASE;
	}
	while (carry && n->len < ARRAY_SIZE(n->limb)) {
		n->limb[n->len++] = carry % BASE;
		carry /= BASE;
	}
}

static u32 digit_sum(const struct number *n)
{
	u32 sum = 0;

	for (u32 i = 0; i < n->len; i++)
		for (u32 limb = n->limb[i]; limb; limb /= 10)
			sum += limb % 10;
	return sum;
}

WORKLOAD u64 prog(struct block *block)
{
	struct number *n = (struct number *)block->scratch;

	n->len = 1;
	n->limb[0] = 1;
	for (u32 i = 2; i <= block->len; i++)
		multiply(n, i);
	return (u64)n->limb[n->len - 1] << 32 | digit_sum(n);
}

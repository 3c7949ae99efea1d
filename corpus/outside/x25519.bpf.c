// X25519 (RFC 7748): the scalar is the first 32 bytes of the input, the point the next; the first eight bytes of the
// product. Numbers modulo 2^255 - 19 have 16 limbs of 16 bits.
// build: -fno-builtin -mllvm -bpf-stack-size=4096
#include "outside.h"

#define LIMBS 16

struct number {
	s64 limb[LIMBS];
};

static void add(struct number *sum, const struct number *a, const struct number *b)
{
	for (int i = 0; i < LIMBS; i++)
		sum->limb[i] = a->limb[i] + b->limb[i];
}

static void subtract(struct number *difference, const struct number *a, const struct number *b)
{
	for (int i = 0; i < LIMBS; i++)
		difference->limb[i] = a->limb[i] - b->limb[i];
}

/* Limbs back to 16 bits; what leaves the last one is worth 38 times as much in the first. */
static void carry(struct number *n)
{
	s64 over = 0;

	for (int i = 0; i < LIMBS; i++) {
		n->limb[i] += over;
		over = n->limb[i] >> 16;
		n->limb[i] &= 0xffff;
	}
	n->limb[0] += 38 * over;
}

static void multiply(struct number *product, const struct number *a, const struct number *b)
{
	s64 wide[2 * LIMBS] = { 0 };
	int i, j;

	for (i = 0; i < LIMBS; i++)
		for (j = 0; j < LIMBS; j++)
			wide[i + j] += a->limb[i] * b->limb[j];
	for (i = 0; i < LIMBS; i++)
		product->limb[i] = wide[i] + 38 * wide[i + LIMBS];
	carry(product);
	carry(product);
}

static void conditional_swap(int bit, struct number *a, struct number *b)
{
	s64 mask = -(s64)bit, different;

	for (int i = 0; i < LIMBS; i++) {
		different = mask & (a->limb[i] ^ b->limb[i]);
		a->limb[i] ^= different;
		b->limb[i] ^= different;
	}
}

/* a to the power of 2^255 - 21, whose bits are ones but for two. */
static void invert(struct number *inverse, const struct number *a)
{
	struct number power = *a;

	for (int bit = 253; bit >= 0; bit--) {
		multiply(&power, &power, &power);
		if (bit != 2 && bit != 4)
			multiply(&power, &power, a);
	}
	*inverse = power;
}

/* The least number that is the same modulo 2^255 - 19. */
static void reduce(struct number *n)
{
	struct number more;

	carry(n);
	carry(n);
	for (int pass = 0; pass < 2; pass++) {
		more = *n;
		more.limb[0] += 19;
		for (int i = 0; i < LIMBS - 1; i++) {
			more.limb[i + 1] += more.limb[i] >> 16;
			more.limb[i] &= 0xffff;
		}
		if (more.limb[LIMBS - 1] >> 15) {
			more.limb[LIMBS - 1] -= 0x8000;
			*n = more;
		}
	}
}

struct ladder {
	struct number x1, x2, z2, x3, z3;
};

static void step(struct ladder *l)
{
	static const struct number a24 = { { 0xdb41, 1 } };
	struct number a, aa, b, bb, e, c, d;

	add(&a, &l->x2, &l->z2);
	multiply(&aa, &a, &a);
	subtract(&b, &l->x2, &l->z2);
	multiply(&bb, &b, &b);
	subtract(&e, &aa, &bb);
	add(&c, &l->x3, &l->z3);
	subtract(&d, &l->x3, &l->z3);
	multiply(&d, &d, &a);
	multiply(&c, &c, &b);
	add(&l->x3, &d, &c);
	multiply(&l->x3, &l->x3, &l->x3);
	subtract(&l->z3, &d, &c);
	multiply(&l->z3, &l->z3, &l->z3);
	multiply(&l->z3, &l->z3, &l->x1);
	multiply(&l->x2, &aa, &bb);
	multiply(&l->z2, &e, &a24);
	add(&l->z2, &l->z2, &aa);
	multiply(&l->z2, &l->z2, &e);
}

WORKLOAD u64 prog(struct block *block)
{
	struct ladder *l = (struct ladder *)block->scratch;
	const u8 *scalar = block->input, *point = block->input + 32;
	int bit, swapped = 0, t;
	u64 result = 0;

	memset(l, 0, sizeof(*l));
	for (int i = 0; i < LIMBS; i++)
		l->x1.limb[i] = point[2 * i] | point[2 * i + 1] << 8;
	l->x1.limb[LIMBS - 1] &= 0x7fff;
	l->x3 = l->x1;
	l->x2.limb[0] = l->z3.limb[0] = 1;
	for (t = 254; t >= 0; t--) {
		bit = t == 254 ? 1 : t < 3 ? 0 : scalar[t / 8] >> t % 8 & 1;
		conditional_swap(swapped ^ bit, &l->x2, &l->x3);
		conditional_swap(swapped ^ bit, &l->z2, &l->z3);
		swapped = bit;
		step(l);
	}
	conditional_swap(swapped, &l->x2, &l->x3);
	conditional_swap(swapped, &l->z2, &l->z3);
	invert(&l->z2, &l->z2);
	multiply(&l->x2, &l->x2, &l->z2);
	reduce(&l->x2);
	for (t = 0; t < 8; t++)
		result = result << 8 | (l->x2.limb[t / 2] >> 8 * (t & 1) & 0xff);
	return result;
}

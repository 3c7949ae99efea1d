// SHA3-256 (FIPS 202) of len bytes. The first eight bytes of the digest.
// build: -fno-builtin
#include "outside.h"

#define RATE 136

static const u64 round_constants[24] = {
	0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000,
	0x000000000000808b, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
	0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
	0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
	0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
	0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

static const u8 rotations[24] = {
	1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44,
};

static const u8 lanes[24] = {
	10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1,
};

static void permute(u64 *state)
{
	u64 column[5], t, next;
	int round, i, row;

	for (round = 0; round < 24; round++) {
		for (i = 0; i < 5; i++)
			column[i] = state[i] ^ state[i + 5] ^ state[i + 10] ^ state[i + 15] ^ state[i + 20];
		for (i = 0; i < 5; i++) {
			t = column[(i + 4) % 5] ^ rotl64(column[(i + 1) % 5], 1);
			for (row = 0; row < 25; row += 5)
				state[row + i] ^= t;
		}
		t = state[1];
		for (i = 0; i < 24; i++) {
			next = state[lanes[i]];
			state[lanes[i]] = rotl64(t, rotations[i]);
			t = next;
		}
		for (row = 0; row < 25; row += 5) {
			for (i = 0; i < 5; i++)
				column[i] = state[row + i];
			for (i = 0; i < 5; i++)
				state[row + i] = column[i] ^ (~column[(i + 1) % 5] & column[(i + 2) % 5]);
		}
		state[0] ^= round_constants[round];
	}
}

static void absorb(u64 *state, const u8 *bytes)
{
	for (int i = 0; i < RATE / 8; i++)
		state[i] ^= load_le64(bytes + 8 * i);
	permute(state);
}

WORKLOAD u64 prog(struct block *block)
{
	u64 *state = block->scratch64;
	u8 *last = block->scratch + 200;
	const u8 *p = block->input;
	u32 left = block->len;

	memset(state, 0, 200);
	for (; left >= RATE; left -= RATE, p += RATE)
		absorb(state, p);
	memset(last, 0, RATE);
	memcpy(last, p, left);
	last[left] = 0x06;
	last[RATE - 1] |= 0x80;
	absorb(state, last);
	return load_be64(block->scratch);
}

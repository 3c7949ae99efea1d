// A state machine: the interpreter of a small stack-less machine with four registers, len steps. Branches that
// depend on data all the time. The input is the code, one 32-bit word per step: operation, target, source, value.
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	u32 steps = block->len, pc = 0, step;
	u64 r0 = 1, r1 = 2, r2 = 3, r3 = 5;

	for (step = 0; step < steps; step++) {
		u32 word = block->input32[pc & 4095], value = word >> 8 & 0xffff;

		pc++;
		switch (word & 15) {
		case 0: r0 += value; break;
		case 1: r1 ^= r0; break;
		case 2: r2 = r2 * 3 + value; break;
		case 3: r3 -= r1; break;
		case 4: r0 = r0 << 5 | r0 >> 59; break;
		case 5: r1 += r2 >> 7; break;
		case 6: r2 &= ~(u64)value; break;
		case 7: r3 |= r0 & value; break;
		case 8:
			if (r0 & 1)
				pc += value & 63;
			break;
		case 9:
			if (r1 > r2)
				pc -= value & 15;
			break;
		case 10: r0 = block->input64[r1 & 4095]; break;
		case 11: r3 ^= block->input32[r2 & 4095]; break;
		case 12: r1 = r3 + value; break;
		case 13: r2 = r0 - r3; break;
		case 14: pc += 3; break;
		default: r0 ^= r3 * value; break;
		}
	}
	return r0 ^ r1 * 3 ^ r2 * 5 ^ r3 * 7 ^ pc;
}

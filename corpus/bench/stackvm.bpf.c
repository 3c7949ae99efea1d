// A bytecode machine: stack, locals, memory, calls, 36 operations. The code is at the start of the input, len is its
// argument, in local 0; the result is the top of the stack. Unlike switchvm it runs a real program, and an
// operation is a byte with up to four more behind it.
// build: -fno-builtin
#include "block.h"

#define STACK 1024
#define BUDGET (1U << 22)

enum {
	HALT, PUSH8, PUSH32, DUP, DROP, SWAP, OVER, ROT,
	ADD, SUB, MUL, DIV, MOD, AND, OR, XOR,
	SHL, SHR, SAR, NOT, NEG, EQ, LT, BELOW,
	JMP, JZ, JNZ, GET, SET, INC, LOAD, STORE,
	CALL, RET, PICK, ISZERO,
};

#define PUSH(value)                           \
	do {                                  \
		u64 pushed = (value);         \
		stack[sp++ & (STACK - 1)] = top; \
		top = pushed;                 \
	} while (0)
#define POP() (stack[--sp & (STACK - 1)])
#define BINARY(expression)      \
	do {                    \
		u64 a = POP();  \
		top = (expression); \
	} while (0)

KERNEL u64 prog(struct block *block)
{
	const u8 *code = block->input;
	u64 *stack = block->scratch64, *local = block->scratch64 + STACK, *memory = block->scratch64 + 2 * STACK;
	u64 *returns = block->scratch64 + 3 * STACK, top = 0, swap;
	u32 pc = 0, sp = 0, depth = 0, step, i;

	for (i = 0; i < 256; i++)
		local[i] = memory[i] = 0;
	local[0] = block->len;
	for (step = 0; step < BUDGET; step++) {
		const u8 *at = code + (pc & 4095);

		switch (at[0]) {
		case HALT: return top;
		case PUSH8: PUSH((s64)(signed char)at[1]); pc += 2; continue;
		case PUSH32: PUSH(*(const u32 *)(at + 1)); pc += 5; continue;
		case DUP: PUSH(top); break;
		case DROP: top = POP(); break;
		case SWAP: swap = stack[(sp - 1) & (STACK - 1)]; stack[(sp - 1) & (STACK - 1)] = top; top = swap; break;
		case OVER: PUSH(stack[(sp - 1) & (STACK - 1)]); break;
		case ROT: swap = stack[(sp - 2) & (STACK - 1)];
			stack[(sp - 2) & (STACK - 1)] = stack[(sp - 1) & (STACK - 1)];
			stack[(sp - 1) & (STACK - 1)] = top; top = swap; break;
		case ADD: BINARY(a + top); break;
		case SUB: BINARY(a - top); break;
		case MUL: BINARY(a * top); break;
		case DIV: BINARY(top ? a / top : 0); break;
		case MOD: BINARY(top ? a % top : a); break;
		case AND: BINARY(a & top); break;
		case OR: BINARY(a | top); break;
		case XOR: BINARY(a ^ top); break;
		case SHL: BINARY(a << (top & 63)); break;
		case SHR: BINARY(a >> (top & 63)); break;
		case SAR: BINARY((u64)((s64)a >> (top & 63))); break;
		case NOT: top = ~top; break;
		case NEG: top = -top; break;
		case EQ: BINARY(a == top); break;
		case LT: BINARY((s64)a < (s64)top); break;
		case BELOW: BINARY(a < top); break;
		case JMP: pc = *(const u16 *)(at + 1); continue;
		case JZ: swap = top; top = POP(); pc = swap ? pc + 3 : *(const u16 *)(at + 1); continue;
		case JNZ: swap = top; top = POP(); pc = swap ? *(const u16 *)(at + 1) : pc + 3; continue;
		case GET: PUSH(local[at[1]]); pc += 2; continue;
		case SET: local[at[1]] = top; top = POP(); pc += 2; continue;
		case INC: local[at[1]]++; pc += 2; continue;
		case LOAD: top = memory[top & 255]; break;
		case STORE: memory[top & 255] = POP(); top = POP(); break;
		case CALL: returns[depth++ & 255] = pc + 3; pc = *(const u16 *)(at + 1); continue;
		case RET: pc = returns[--depth & 255]; continue;
		case PICK: top = stack[(sp - 1 - top) & (STACK - 1)]; break;
		case ISZERO: top = !top; break;
		default: return ~0ULL;
		}
		pc++;
	}
	return ~0ULL;
}

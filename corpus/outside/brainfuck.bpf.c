// An interpreter of Brainfuck: prepares the jumps of the program in the input, which ends with a zero, then runs it for at most
// len steps. A digest of what it prints.
// build: -fno-builtin -mllvm -bpf-stack-size=1024
#include "outside.h"

#define TAPE 4096
#define LONGEST 8192

struct state {
	u16 jump[LONGEST];
	u8 tape[TAPE];
	u8 out[4096];
};

static int prepare(u16 *jump, const u8 *code)
{
	u16 open[64];
	u32 depth = 0;
	int i;

	for (i = 0; code[i]; i++) {
		if (i == LONGEST)
			return -1;
		if (code[i] == '[') {
			if (depth == ARRAY_SIZE(open))
				return -1;
			open[depth++] = i;
		} else if (code[i] == ']') {
			if (!depth)
				return -1;
			jump[i] = open[--depth];
			jump[jump[i]] = i;
		}
	}
	return depth ? -1 : i;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	const u8 *code = block->input;
	int size = prepare(s->jump, code), pc;
	u32 at = 0, printed = 0;
	u64 steps = 0;

	memset(s->tape, 0, TAPE);
	for (pc = 0; pc < size && steps < block->len; pc++, steps++) {
		switch (code[pc]) {
		case '>':
			at = (at + 1) % TAPE;
			break;
		case '<':
			at = (at - 1) % TAPE;
			break;
		case '+':
			s->tape[at]++;
			break;
		case '-':
			s->tape[at]--;
			break;
		case '.':
			if (printed < sizeof(s->out))
				s->out[printed++] = s->tape[at];
			break;
		case '[':
			if (!s->tape[at])
				pc = s->jump[pc];
			break;
		case ']':
			if (s->tape[at])
				pc = s->jump[pc];
			break;
		}
	}
	return digest(s->out, printed);
}

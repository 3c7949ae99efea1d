// A Forth of integer words: compiles the text of len bytes to cells and runs them, as Forth-79 has it: : ; if else then begin until
// while repeat do loop i, arithmetic, comparisons, the stack, memory by @ and !. A digest of the numbers that `.` prints.
// build: -fno-builtin -mcpu=v4
#include "outside.h"

enum {
	EXIT, NUMBER, CALL, JUMP, JUMP_IF_ZERO, DO, LOOP, /* made by the compiler alone */
	PLUS, MINUS, TIMES, DIVIDE, MOD, AND, OR, XOR, EQUAL, LESS, GREATER, NOT,
	DUP, DROP, SWAP, OVER, ROT, FETCH, STORE, INDEX, PRINT,
	COLON, SEMICOLON, IF, ELSE, THEN, BEGIN, UNTIL, WHILE, REPEAT, DO_WORD, LOOP_WORD,
};

#define WORDS (LOOP_WORD - PLUS + 1)
#define CELLS 4096
#define MEMORY 1024
#define STACK 256

static const char words[WORDS][8] = {
	"+", "-", "*", "/", "mod", "and", "or", "xor", "=", "<", ">", "0=",
	"dup", "drop", "swap", "over", "rot", "@", "!", "i", ".",
	":", ";", "if", "else", "then", "begin", "until", "while", "repeat", "do", "loop",
};

struct forth {
	const u8 *at, *end;
	s32 code[CELLS], memory[MEMORY];
	s32 stack[STACK], returns[STACK], open[STACK];
	struct {
		u8 name[16];
		u32 entry;
	} defined[128];
	u32 here, definitions, opened;
	u64 hash;
};

/* Reads the next word; its length, or 0 at the end. */
static u32 next_word(struct forth *f, u8 *word)
{
	u32 len = 0;

	while (f->at < f->end && *f->at <= ' ')
		f->at++;
	memset(word, 0, 16);
	for (; f->at < f->end && *f->at > ' '; f->at++)
		if (len < 15)
			word[len++] = *f->at;
	return len;
}

static void emit(struct forth *f, s32 cell)
{
	f->code[f->here++ % CELLS] = cell;
}

static u32 find_word(const u8 *word)
{
	for (u32 i = 0; i < WORDS; i++)
		if (memcmp(words[i], word, 8) == 0)
			return PLUS + i;
	return 0;
}

/* The latest definition of a name, or -1. */
static int find_defined(const struct forth *f, const u8 *word)
{
	for (u32 i = f->definitions; i-- > 0;)
		if (memcmp(f->defined[i].name, word, 16) == 0)
			return f->defined[i].entry;
	return -1;
}

static s32 number(const u8 *word)
{
	int negative = *word == '-';
	s32 value = 0;

	for (word += negative; *word; word++)
		value = value * 10 + (*word - '0');
	return negative ? -value : value;
}

static void open(struct forth *f, s32 place)
{
	f->open[f->opened++ % STACK] = place;
}

static s32 close(struct forth *f)
{
	return f->open[--f->opened % STACK];
}

/* A jump to a place that comes later. */
static void jump_ahead(struct forth *f, s32 kind)
{
	emit(f, kind);
	open(f, f->here);
	emit(f, 0);
}

static void jump_back(struct forth *f, s32 kind, s32 place)
{
	emit(f, kind);
	emit(f, place);
}

static void land(struct forth *f, s32 place)
{
	f->code[place % CELLS] = f->here;
}

static void structure(struct forth *f, u32 word)
{
	s32 place;

	switch (word) {
	case IF:
	case WHILE:
		jump_ahead(f, JUMP_IF_ZERO);
		break;
	case ELSE:
		place = close(f);
		jump_ahead(f, JUMP);
		land(f, place);
		break;
	case THEN:
		land(f, close(f));
		break;
	case BEGIN:
		open(f, f->here);
		break;
	case UNTIL:
		jump_back(f, JUMP_IF_ZERO, close(f));
		break;
	case REPEAT:
		place = close(f);
		jump_back(f, JUMP, close(f));
		land(f, place);
		break;
	case DO_WORD:
		emit(f, DO);
		open(f, f->here);
		break;
	case LOOP_WORD:
		jump_back(f, LOOP, close(f));
		break;
	default:
		emit(f, word);
	}
}

/* Compiles up to the end of a definition or of the text. */
static void compile(struct forth *f)
{
	u8 word[16];
	u32 known;
	int entry;

	while (next_word(f, word)) {
		known = find_word(word);
		if (known == SEMICOLON)
			break;
		entry = known ? -1 : find_defined(f, word);
		if (known) {
			structure(f, known);
		} else if (entry >= 0) {
			emit(f, CALL);
			emit(f, entry);
		} else {
			emit(f, NUMBER);
			emit(f, number(word));
		}
	}
	emit(f, EXIT);
}

/* What takes two values and leaves one. */
static s32 combine(s32 word, s32 a, s32 b)
{
	switch (word) {
	case PLUS:
		return (u32)a + b;
	case MINUS:
		return (u32)a - b;
	case TIMES:
		return (u32)a * b;
	case DIVIDE:
		return b && b != -1 ? a / b : 0;
	case MOD:
		return b && b != -1 ? a % b : 0;
	case AND:
		return a & b;
	case OR:
		return a | b;
	case XOR:
		return a ^ b;
	case EQUAL:
		return -(a == b);
	case LESS:
		return -(a < b);
	default:
		return -(a > b);
	}
}

/* Words that move values on the stack; the new depth. */
static u32 shuffle(struct forth *f, s32 word, u32 depth)
{
	s32 *top = f->stack + depth, kept;

	switch (word) {
	case DUP:
		top[0] = top[-1];
		return depth + 1;
	case DROP:
		return depth - 1;
	case SWAP:
		kept = top[-1];
		top[-1] = top[-2];
		top[-2] = kept;
		return depth;
	case OVER:
		top[0] = top[-2];
		return depth + 1;
	case ROT:
		kept = top[-3];
		top[-3] = top[-2];
		top[-2] = top[-1];
		top[-1] = kept;
		return depth;
	case NOT:
		top[-1] = -!top[-1];
		return depth;
	case FETCH:
		top[-1] = f->memory[(u32)top[-1] % MEMORY];
		return depth;
	case STORE:
		f->memory[(u32)top[-1] % MEMORY] = top[-2];
		return depth - 2;
	default: /* PRINT */
		f->hash = f->hash * 31 + (u32)top[-1];
		return depth - 1;
	}
}

/* Runs from an entry on, at least three values above an empty stack; whether it ends well. */
static int run(struct forth *f, u32 pc)
{
	u32 depth = 3, returns = 0;
	s32 word;

	for (;;) {
		if (depth < 3 || depth >= STACK - 1 || returns >= STACK - 2 || pc >= CELLS - 1)
			return 0;
		word = f->code[pc++];
		switch (word) {
		case EXIT:
			if (!returns)
				return depth == 3;
			pc = f->returns[--returns];
			break;
		case NUMBER:
			f->stack[depth++] = f->code[pc++];
			break;
		case CALL:
			f->returns[returns++] = pc + 1;
			pc = f->code[pc];
			break;
		case JUMP:
			pc = f->code[pc];
			break;
		case JUMP_IF_ZERO:
			pc = f->stack[--depth] ? pc + 1 : (u32)f->code[pc];
			break;
		case DO:
			f->returns[returns++] = f->stack[depth - 2];
			f->returns[returns++] = f->stack[depth - 1];
			depth -= 2;
			break;
		case LOOP:
			if (++f->returns[returns - 1] < f->returns[returns - 2]) {
				pc = f->code[pc];
			} else {
				returns -= 2;
				pc++;
			}
			break;
		case INDEX:
			f->stack[depth++] = f->returns[returns - 1];
			break;
		default:
			if (word <= GREATER) {
				depth--;
				f->stack[depth - 1] = combine(word, f->stack[depth - 1], f->stack[depth]);
			} else {
				depth = shuffle(f, word, depth);
			}
		}
	}
}

WORKLOAD u64 prog(struct block *block)
{
	struct forth *f = (struct forth *)block->scratch;
	u8 word[16];

	f->at = block->input;
	f->end = f->at + block->len;
	f->here = f->definitions = f->opened = 0;
	f->hash = 0;
	memset(f->stack, 0, sizeof(f->stack));
	memset(f->memory, 0, sizeof(f->memory));
	while (next_word(f, word)) {
		if (find_word(word) == COLON) {
			if (f->definitions == ARRAY_SIZE(f->defined))
				return 0;
			next_word(f, f->defined[f->definitions].name);
			f->defined[f->definitions++].entry = f->here;
			compile(f);
			continue;
		}
		/* Outside of definitions there are only names of words to run. */
		int entry = find_defined(f, word);

		if (entry < 0 || f->here >= CELLS || !run(f, entry))
			return 0;
	}
	return f->hash;
}

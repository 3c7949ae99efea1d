// A calculator: reads len bytes of lines with integers, + - * / %, parentheses and unary minus, turns each into postfix by
// Dijkstra's shunting yard, and evaluates that modulo 2^64.
// build: -fno-builtin
#include "outside.h"

struct item {
	u8 operator; /* 0 for a number */
	u64 number;
};

struct state {
	struct item output[256];
	u32 outputs;
	u8 operators[128];
	u32 depth;
	u64 values[256];
};

static int precedence(u8 operator)
{
	switch (operator) {
	case '~':
		return 3;
	case '*': case '/': case '%':
		return 2;
	case '+': case '-':
		return 1;
	default:
		return 0;
	}
}

static void put(struct state *s, u8 operator, u64 number)
{
	if (s->outputs < ARRAY_SIZE(s->output)) {
		s->output[s->outputs].operator = operator;
		s->output[s->outputs++].number = number;
	}
}

static const u8 *postfix(struct state *s, const u8 *p, const u8 *end)
{
	int operand = 1; /* is next */

	s->outputs = s->depth = 0;
	for (; p < end && *p != '\n'; p++) {
		if (*p >= '0' && *p <= '9') {
			u64 number = 0;

			for (; p < end && *p >= '0' && *p <= '9'; p++)
				number = number * 10 + *p - '0';
			p--;
			put(s, 0, number);
			operand = 0;
		} else if (*p == '(') {
			s->operators[s->depth++ % 128] = '(';
			operand = 1;
		} else if (*p == ')') {
			while (s->depth && s->operators[s->depth - 1] != '(')
				put(s, s->operators[--s->depth], 0);
			if (s->depth)
				s->depth--;
			operand = 0;
		} else if (precedence(*p)) {
			u8 operator = operand && *p == '-' ? '~' : *p;

			while (s->depth && operator != '~' && precedence(s->operators[s->depth - 1]) >= precedence(operator))
				put(s, s->operators[--s->depth], 0);
			s->operators[s->depth++ % 128] = operator;
			operand = 1;
		}
	}
	while (s->depth)
		put(s, s->operators[--s->depth], 0);
	return p + 1;
}

static u64 evaluate(struct state *s)
{
	u64 *values = s->values, right;
	u32 depth = 0;

	for (u32 i = 0; i < s->outputs; i++) {
		if (!s->output[i].operator) {
			values[depth++] = s->output[i].number;
			continue;
		}
		if (depth < 1 + (s->output[i].operator != '~'))
			return 0;
		if (s->output[i].operator == '~') {
			values[depth - 1] = -values[depth - 1];
			continue;
		}
		right = values[--depth];
		switch (s->output[i].operator) {
		case '+':
			values[depth - 1] += right;
			break;
		case '-':
			values[depth - 1] -= right;
			break;
		case '*':
			values[depth - 1] *= right;
			break;
		case '/':
			values[depth - 1] = right ? values[depth - 1] / right : 0;
			break;
		case '%':
			values[depth - 1] = right ? values[depth - 1] % right : 0;
			break;
		}
	}
	return depth ? values[depth - 1] : 0;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	const u8 *p = block->input, *end = p + block->len;
	u64 result = 0;

	while (p < end) {
		p = postfix(s, p, end);
		result = result * 31 + evaluate(s);
	}
	return result;
}

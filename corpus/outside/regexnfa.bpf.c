// Regular expressions with | * + ? and parentheses as nondeterministic automata, by Thompson's construction, run over len bytes
// of text with sets of states. Counts the places where a match ends.
// build: -fno-builtin -mllvm -bpf-stack-size=2048
#include "outside.h"

enum { SPLIT = 256, MATCH, ANY };

struct node {
	u16 what;
	s16 next, other;
};

struct machine {
	struct node nodes[128];
	int count;
	const char *re;
	int bad;
	s16 lists[2][128];
	int len[2];
	u32 seen[128];
	u32 generation;
	s16 stack[256];
};

/* A piece with one entry and one node whose `next` is open. */
struct piece {
	s16 start, end;
};

static s16 node(struct machine *m, int what, int next, int other)
{
	if (m->count == 128) {
		m->bad = 1;
		return 0;
	}
	m->nodes[m->count].what = what;
	m->nodes[m->count].next = next;
	m->nodes[m->count].other = other;
	return m->count++;
}

static void alternatives(struct machine *m, struct piece *p);

static void atom(struct machine *m, struct piece *p)
{
	char c = *m->re++;

	if (c == '(') {
		alternatives(m, p);
		if (*m->re++ != ')')
			m->bad = 1;
		return;
	}
	if (c == '\\')
		c = *m->re++;
	else if (c == '.') {
		p->start = p->end = node(m, ANY, -1, -1);
		return;
	}
	p->start = p->end = node(m, (u8)c, -1, -1);
}

static void repeated(struct machine *m, struct piece *p)
{
	atom(m, p);
	for (;; m->re++) {
		s16 join, split;
		char c = *m->re;

		if (c != '*' && c != '+' && c != '?')
			return;
		/* A split whose both ways are taken, and whose second leads on. */
		join = node(m, SPLIT, -1, -1);
		split = node(m, SPLIT, p->start, join);
		m->nodes[p->end].next = c == '?' ? join : split;
		if (c != '+')
			p->start = split;
		p->end = join;
	}
}

static void sequence(struct machine *m, struct piece *p)
{
	struct piece next;

	repeated(m, p);
	while (*m->re && *m->re != '|' && *m->re != ')' && !m->bad) {
		repeated(m, &next);
		m->nodes[p->end].next = next.start;
		p->end = next.end;
	}
}

static void alternatives(struct machine *m, struct piece *p)
{
	struct piece other;
	s16 join;

	sequence(m, p);
	while (*m->re == '|' && !m->bad) {
		m->re++;
		sequence(m, &other);
		join = node(m, SPLIT, -1, -1);
		p->start = node(m, SPLIT, p->start, other.start);
		m->nodes[p->end].next = m->nodes[other.end].next = join;
		p->end = join;
	}
}

/* Adds a state and what it leads to without a byte; whether that is a match. */
static int add(struct machine *m, int list, int state)
{
	int depth = 0, matched = 0;

	m->stack[depth++] = state;
	while (depth) {
		const struct node *n;

		state = m->stack[--depth];
		if (state < 0 || m->seen[state] == m->generation)
			continue;
		m->seen[state] = m->generation;
		n = &m->nodes[state];
		if (n->what == SPLIT) {
			m->stack[depth++] = n->other;
			m->stack[depth++] = n->next;
		} else if (n->what == MATCH) {
			matched = 1;
		} else {
			m->lists[list][m->len[list]++] = state;
		}
	}
	return matched;
}

static u32 run(struct machine *m, int start, const u8 *text, u32 len)
{
	u32 found = 0, at;
	int now = 0, i;

	m->len[0] = 0;
	for (at = 0; at < len; at++) {
		int then = 1 - now, matched = 0;
		u8 c = text[at];

		/* A match may begin here, too. */
		add(m, now, start);
		m->generation++;
		m->len[then] = 0;
		for (i = 0; i < m->len[now]; i++) {
			const struct node *n = &m->nodes[m->lists[now][i]];

			if (n->what == c || (n->what == ANY && c != '\n'))
				matched |= add(m, then, n->next);
		}
		found += matched;
		now = then;
	}
	return found;
}

WORKLOAD u64 prog(struct block *block)
{
	static const char expressions[4][32] = { "(a|e)(r|n)+", "(the|that|then) (.)*s", "o(u|w)?(r|n)*(s|t)?e", "((c|d)o)+.*k" };
	struct machine *m = (struct machine *)block->scratch;
	u64 result = 0;

	memset(m->seen, 0, sizeof(m->seen));
	m->generation = 0;
	for (u32 i = 0; i < ARRAY_SIZE(expressions); i++) {
		struct piece p;

		m->count = m->bad = 0;
		m->re = expressions[i];
		m->generation++;
		alternatives(m, &p);
		m->nodes[p.end].next = node(m, MATCH, -1, -1);
		if (m->bad)
			return 1;
		result = result << 16 | run(m, p.start, block->input, block->len);
	}
	return result;
}

// Builds a Huffman code for len bytes with a heap, encodes them, decodes the bits by walking the tree, and compares.
// build: -fno-builtin
#include "outside.h"

struct node {
	u32 weight;
	s16 left, right;
};

struct state {
	struct node nodes[511];
	u16 heap[256];
	u32 heap_size;
	u32 code[256];
	u8 code_len[256];
	struct {
		u32 code;
		u16 node, depth;
	} stack[256];
	u8 bits[24576];
};

static int lighter(const struct state *s, u32 a, u32 b)
{
	return s->nodes[a].weight < s->nodes[b].weight || (s->nodes[a].weight == s->nodes[b].weight && a < b);
}

static void push(struct state *s, u32 node)
{
	u32 at = s->heap_size++;

	while (at && lighter(s, node, s->heap[(at - 1) / 2])) {
		s->heap[at] = s->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	s->heap[at] = node;
}

static u32 pop(struct state *s)
{
	u32 top = s->heap[0], last = s->heap[--s->heap_size], at = 0, child;

	while ((child = 2 * at + 1) < s->heap_size) {
		if (child + 1 < s->heap_size && lighter(s, s->heap[child + 1], s->heap[child]))
			child++;
		if (!lighter(s, s->heap[child], last))
			break;
		s->heap[at] = s->heap[child];
		at = child;
	}
	s->heap[at] = last;
	return top;
}

static u32 build(struct state *s, const u8 *text, u32 len)
{
	u32 next = 256, i;

	memset(s->nodes, 0, sizeof(s->nodes));
	for (i = 0; i < len; i++)
		s->nodes[text[i]].weight++;
	s->heap_size = 0;
	for (i = 0; i < 256; i++) {
		s->nodes[i].left = s->nodes[i].right = -1;
		if (s->nodes[i].weight)
			push(s, i);
	}
	while (s->heap_size > 1) {
		u32 a = pop(s), b = pop(s);

		s->nodes[next].weight = s->nodes[a].weight + s->nodes[b].weight;
		s->nodes[next].left = a;
		s->nodes[next].right = b;
		push(s, next++);
	}
	return next - 1;
}

static void assign(struct state *s, u32 root)
{
	u32 depth = 1;

	s->stack[0].node = root;
	s->stack[0].code = s->stack[0].depth = 0;
	while (depth) {
		u32 node = s->stack[--depth].node, code = s->stack[depth].code, len = s->stack[depth].depth;

		if (s->nodes[node].left < 0) {
			s->code[node] = code;
			s->code_len[node] = len;
			continue;
		}
		s->stack[depth].node = s->nodes[node].right;
		s->stack[depth].code = code << 1 | 1;
		s->stack[depth++].depth = len + 1;
		s->stack[depth].node = s->nodes[node].left;
		s->stack[depth].code = code << 1;
		s->stack[depth++].depth = len + 1;
	}
}

static u32 encode(struct state *s, const u8 *text, u32 len)
{
	u32 size = 0, have = 0;
	u64 bits = 0;

	for (u32 i = 0; i < len; i++) {
		bits = bits << s->code_len[text[i]] | s->code[text[i]];
		have += s->code_len[text[i]];
		while (have >= 8) {
			have -= 8;
			s->bits[size++] = bits >> have;
		}
	}
	s->bits[size++] = bits << (8 - have);
	return size;
}

WORKLOAD u64 prog(struct block *block)
{
	struct state *s = (struct state *)block->scratch;
	u32 len = block->len, root = build(s, block->input, len), size, at = 0;

	assign(s, root);
	size = encode(s, block->input, len);
	for (u32 i = 0; i < len; i++) {
		u32 node = root;

		for (; s->nodes[node].left >= 0; at++)
			node = s->bits[at / 8] >> (7 - at % 8) & 1 ? s->nodes[node].right : s->nodes[node].left;
		if (node != block->input[i])
			return i;
	}
	return digest(s->bits, size) ^ size;
}

// The shortest way from corner to corner of a grid of len by len cells with costs from 1 to 16, by Dijkstra's algorithm with a
// binary heap.
// build: -fno-builtin
#include "outside.h"

#define MOST 64

struct state {
	u32 distance[MOST * MOST];
	struct {
		u32 distance;
		u16 cell;
	} heap[4096];
	u32 size;
};

static void push(struct state *s, u32 distance, u32 cell)
{
	u32 at = s->size++;

	while (at && s->heap[(at - 1) / 2].distance > distance) {
		s->heap[at] = s->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	s->heap[at].distance = distance;
	s->heap[at].cell = cell;
}

static u32 pop(struct state *s, u32 *distance)
{
	u32 top = s->heap[0].cell, at = 0, child;

	*distance = s->heap[0].distance;
	s->size--;
	while ((child = 2 * at + 1) < s->size) {
		if (child + 1 < s->size && s->heap[child + 1].distance < s->heap[child].distance)
			child++;
		if (s->heap[child].distance >= s->heap[s->size].distance)
			break;
		s->heap[at] = s->heap[child];
		at = child;
	}
	s->heap[at] = s->heap[s->size];
	return top;
}

WORKLOAD u64 prog(struct block *block)
{
	static const s8 moves[4][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 0, -1 } };
	struct state *s = (struct state *)block->scratch;
	u32 side = block->len, i, settled = 0;

	if (side > MOST)
		return 0;
	for (i = 0; i < side * side; i++)
		s->distance[i] = ~0u;
	s->size = 0;
	s->distance[0] = 0;
	push(s, 0, 0);
	while (s->size) {
		u32 distance, cell = pop(s, &distance);
		int x = cell % side, y = cell / side;

		if (distance != s->distance[cell])
			continue;
		settled++;
		if (cell == side * side - 1)
			return (u64)distance << 32 | settled;
		for (i = 0; i < 4; i++) {
			u32 nx = x + moves[i][0], ny = y + moves[i][1], next, far;

			if (nx >= side || ny >= side)
				continue;
			next = ny * side + nx;
			far = distance + 1 + block->input[next] % 16;
			if (far < s->distance[next] && s->size < ARRAY_SIZE(s->heap)) {
				s->distance[next] = far;
				push(s, far, next);
			}
		}
	}
	return 0;
}

// A k-d tree (Bentley, 1975) of len points with three coordinates of 16 bits: built by selection of medians, then half as many searches
// for the nearest point, and one for all points within a box for every eighth. A digest of what they find.
// build: -fno-builtin -mcpu=v4 -mllvm -bpf-stack-size=1024
#include "outside.h"

#define MOST 2048
#define AXES 3

struct point {
	u16 at[AXES];
	u16 number;
};

struct search {
	const struct point *points;
	u16 low[AXES], high[AXES]; /* the box; of the nearest, low is the target */
	u64 distance;
	u32 number, found;
};

/* Afterwards points below `middle` have no more on the axis than that at it, points above it no less. */
static void select(struct point *points, int first, int last, int middle, u32 axis)
{
	while (first < last) {
		u32 pivot = points[(first + last) / 2].at[axis];
		int i = first, j = last;

		while (i <= j) {
			while (points[i].at[axis] < pivot)
				i++;
			while (points[j].at[axis] > pivot)
				j--;
			if (i <= j) {
				struct point point = points[i];

				points[i++] = points[j];
				points[j--] = point;
			}
		}
		if (middle <= j)
			last = j;
		else if (middle >= i)
			first = i;
		else
			return;
	}
}

static void build(struct point *points, int first, int last, u32 axis)
{
	int middle = (first + last) / 2;

	if (first >= last)
		return;
	select(points, first, last, middle, axis);
	build(points, first, middle - 1, (axis + 1) % AXES);
	build(points, middle + 1, last, (axis + 1) % AXES);
}

static u64 squared(u32 a, u32 b)
{
	u64 apart = a < b ? b - a : a - b;

	return apart * apart;
}

static void nearest(struct search *s, int first, int last, u32 axis)
{
	int middle = (first + last) / 2, before;
	const struct point *point = s->points + middle;
	u64 distance = 0;
	u32 i;

	if (first > last)
		return;
	for (i = 0; i < AXES; i++)
		distance += squared(point->at[i], s->low[i]);
	if (distance < s->distance || (distance == s->distance && point->number < s->number)) {
		s->distance = distance;
		s->number = point->number;
	}
	before = s->low[axis] < point->at[axis];
	distance = squared(point->at[axis], s->low[axis]);
	axis = (axis + 1) % AXES;
	if (before)
		nearest(s, first, middle - 1, axis);
	else
		nearest(s, middle + 1, last, axis);
	if (distance > s->distance)
		return;
	if (before)
		nearest(s, middle + 1, last, axis);
	else
		nearest(s, first, middle - 1, axis);
}

static void within(struct search *s, int first, int last, u32 axis)
{
	int middle = (first + last) / 2;
	const struct point *point = s->points + middle;
	u32 i, next = (axis + 1) % AXES;

	if (first > last)
		return;
	for (i = 0; i < AXES && point->at[i] >= s->low[i] && point->at[i] <= s->high[i]; i++)
		;
	if (i == AXES) {
		s->found++;
		s->number += point->number;
	}
	if (point->at[axis] >= s->low[axis])
		within(s, first, middle - 1, next);
	if (point->at[axis] <= s->high[axis])
		within(s, middle + 1, last, next);
}

WORKLOAD u64 prog(struct block *block)
{
	struct point *points = (struct point *)block->scratch;
	const u16 *targets = block->input16 + AXES * MOST;
	struct search s = { .points = points };
	int n = block->len;
	u64 result = 0;

	if (n > MOST)
		return 0;
	for (int i = 0; i < n; i++) {
		memcpy(points[i].at, block->input16 + AXES * i, sizeof(points[i].at));
		points[i].number = i;
	}
	build(points, 0, n - 1, 0);
	for (int i = 0; i < n / 2; i++, targets += AXES) {
		memcpy(s.low, targets, sizeof(s.low));
		s.distance = ~0ull;
		s.number = 0;
		nearest(&s, 0, n - 1, 0);
		result = result * 31 + s.distance + s.number;
		if (i % 8)
			continue;
		for (u32 axis = 0; axis < AXES; axis++)
			s.high[axis] = s.low[axis] < 49152 ? s.low[axis] + 16383 : 65535;
		s.number = s.found = 0;
		within(&s, 0, n - 1, 0);
		result = result * 31 + s.found + s.number;
	}
	return result;
}

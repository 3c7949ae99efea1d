// Decompresses one LZ4 block into len bytes: copies of every length, some that overlap themselves. The input is the
// size of the block in 32 bits, then the block. Copies go by words of 64 bits where source and room allow it.
// build: -fno-builtin
#include "block.h"

KERNEL u64 prog(struct block *block)
{
	const u8 *from = block->input + 4;
	u8 *out = block->scratch;
	u32 end = block->input32[0], size = block->len, at = 0, to = 0, i;
	u64 hash = 0;

	if (end > AREA - 16 || size > AREA)
		return 1;
	while (at < end) {
		u32 token = from[at++], count = token >> 4, offset, more;

		if (count == 15) {
			do {
				if (at >= end)
					return 2;
				more = from[at++];
				count += more;
			} while (more == 255);
		}
		if (count > end - at || count > size - to)
			return 3;
		if (size - to >= count + 8 && end - at >= count + 8) {
#pragma clang loop unroll(disable)
			for (i = 0; i < count; i += 8)
				*(u64 *)(out + to + i) = *(const u64 *)(from + at + i);
		} else {
#pragma clang loop unroll(disable)
			for (i = 0; i < count; i++)
				out[to + i] = from[at + i];
		}
		at += count;
		to += count;
		if (at >= end)
			break;
		if (end - at < 2)
			return 4;
		offset = from[at] | from[at + 1] << 8;
		at += 2;
		if (!offset || offset > to)
			return 5;
		count = token & 15;
		if (count == 15) {
			do {
				if (at >= end)
					return 2;
				more = from[at++];
				count += more;
			} while (more == 255);
		}
		count += 4;
		if (count > size - to)
			return 6;
		if (offset >= 8 && size - to >= count + 8) {
#pragma clang loop unroll(disable)
			for (i = 0; i < count; i += 8)
				*(u64 *)(out + to + i) = *(u64 *)(out + (to - offset) + i);
		} else {
#pragma clang loop unroll(disable)
			for (i = 0; i < count; i++)
				out[to + i] = out[to - offset + i];
		}
		to += count;
	}
	if (to != size)
		return 7;
	for (i = 0; i < size / 8; i++)
		hash = hash * 31 + block->scratch64[i];
	return hash;
}

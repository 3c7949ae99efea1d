// The CRC-32 of IEEE 802.3 over len bytes, by a table that is made first.
// build: -fno-builtin
#include "outside.h"

static void make_table(u32 *table)
{
	u32 n, c;
	int k;

	for (n = 0; n < 256; n++) {
		c = n;
		for (k = 0; k < 8; k++)
			c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
		table[n] = c;
	}
}

static u32 crc32(const u32 *table, const u8 *data, u32 len)
{
	u32 crc = ~0u;

	while (len--)
		crc = table[(crc ^ *data++) & 0xff] ^ crc >> 8;
	return ~crc;
}

WORKLOAD u64 prog(struct block *block)
{
	make_table(block->scratch32);
	return crc32(block->scratch32, block->input, block->len);
}

// Walks len packets of 128 bytes each: Ethernet, VLAN tags, IPv4 with options and header checksum, TCP or UDP
// ports. Short fields of every size in network order, a bounds check before each header.
#include "block.h"

#define PACKET 128

static inline __attribute__((always_inline)) u32 be16(const u8 *p)
{
	return __builtin_bswap16(*(const u16 *)p);
}

KERNEL u64 prog(struct block *block)
{
	u64 hash = 0, n = block->len, i;

	if (n > AREA / PACKET)
		return 0;
	for (i = 0; i < n; i++) {
		const u8 *at = block->input + i * PACKET, *end = at + PACKET, *ip;
		u32 protocol, header, sum = 0, k;

		protocol = be16(at + 12);
		at += 14;
		if (protocol == 0x8100 || protocol == 0x88a8) {
			protocol = be16(at + 2);
			at += 4;
		}
		if (protocol != 0x0800) {
			hash = hash * 31 + protocol;
			continue;
		}
		ip = at;
		header = (ip[0] & 15) * 4;
		if (ip[0] >> 4 != 4 || header < 20 || ip + header > end) {
			hash = hash * 31 + 1;
			continue;
		}
#pragma clang loop unroll(disable)
		for (k = 0; k < header; k += 2)
			sum += *(const u16 *)(ip + k);
		sum = (sum & 0xffff) + (sum >> 16);
		hash = hash * 31 + (sum & 0xffff) + (sum >> 16);
		hash ^= (u64)*(const u32 *)(ip + 12) << 32 | *(const u32 *)(ip + 16);
		at = ip + header;
		if ((ip[9] == 6 && at + 20 <= end) || (ip[9] == 17 && at + 8 <= end))
			hash = hash * 31 + ((u64)be16(at) << 16 | be16(at + 2));
	}
	return hash;
}

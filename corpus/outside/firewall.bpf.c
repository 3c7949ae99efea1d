// A packet filter: len Ethernet frames in slots of 128 bytes go through a list of rules with prefixes, port ranges, protocols and
// TCP flags, first match wins. Counts by verdict and by rule.
// build: -fno-builtin
#include "outside.h"

#define SLOT 128

enum verdict { ACCEPT, DROP, REJECT };

struct rule {
	u32 source, source_mask, target, target_mask;
	u16 port_low, port_high;
	u8 protocol; /* any if 0 */
	u8 flags, flags_mask;
	u8 verdict;
};

struct packet {
	u32 source, target;
	u16 source_port, target_port;
	u8 protocol, flags;
};

static const struct rule rules[] = {
	{ 0, 0, 0, 0, 0, 65535, 6, 0x12, 0x3f, ACCEPT },
	{ 0x0a000000, 0xff000000, 0, 0, 0, 65535, 0, 0, 0, DROP },
	{ 0xc0a80000, 0xffff0000, 0, 0, 0, 65535, 0, 0, 0, DROP },
	{ 0, 0, 0x80000000, 0xc0000000, 22, 22, 6, 0, 0, ACCEPT },
	{ 0, 0, 0x80000000, 0x80000000, 0, 1023, 6, 2, 0x12, REJECT },
	{ 0, 0, 0, 0, 53, 53, 17, 0, 0, ACCEPT },
	{ 0, 0, 0, 0, 80, 443, 6, 0, 0, ACCEPT },
	{ 0x40000000, 0xe0000000, 0x20000000, 0x60000000, 1024, 49151, 17, 0, 0, ACCEPT },
	{ 0, 0, 0xe0000000, 0xf0000000, 0, 65535, 0, 0, 0, DROP },
	{ 0, 0, 0, 0, 0, 65535, 1, 0, 0, ACCEPT },
	{ 0, 0, 0, 0, 32768, 65535, 0, 0, 0, REJECT },
};

static int parse(struct packet *p, const u8 *frame, u32 len)
{
	u32 at = 14, type = load_be16(frame + 12), header, size;

	if (type == 0x8100) {
		type = load_be16(frame + 16);
		at = 18;
	}
	if (type != 0x0800 || frame[at] >> 4 != 4)
		return 0;
	header = (frame[at] & 15) * 4;
	size = load_be16(frame + at + 2);
	if (header < 20 || at + header + 20 > len || size < header)
		return 0;
	p->protocol = frame[at + 9];
	p->source = load_be32(frame + at + 12);
	p->target = load_be32(frame + at + 16);
	p->source_port = p->target_port = p->flags = 0;
	at += header;
	if (p->protocol == 6 || p->protocol == 17) {
		p->source_port = load_be16(frame + at);
		p->target_port = load_be16(frame + at + 2);
	}
	if (p->protocol == 6)
		p->flags = frame[at + 13];
	return 1;
}

static int matches(const struct rule *r, const struct packet *p)
{
	if ((p->source & r->source_mask) != r->source || (p->target & r->target_mask) != r->target)
		return 0;
	if (r->protocol && r->protocol != p->protocol)
		return 0;
	if (p->target_port < r->port_low || p->target_port > r->port_high)
		return 0;
	return (p->flags & r->flags_mask) == r->flags;
}

WORKLOAD u64 prog(struct block *block)
{
	u32 *counts = block->scratch32, verdicts[3] = { 0 }, broken = 0, i, r;
	u64 result;

	memset(counts, 0, 4 * (ARRAY_SIZE(rules) + 1));
	for (i = 0; i < block->len; i++) {
		struct packet packet;

		if (!parse(&packet, block->input + SLOT * i, SLOT)) {
			broken++;
			continue;
		}
		for (r = 0; r < ARRAY_SIZE(rules); r++)
			if (matches(&rules[r], &packet))
				break;
		counts[r]++;
		verdicts[r < ARRAY_SIZE(rules) ? rules[r].verdict : DROP]++;
	}
	result = broken;
	for (r = 0; r <= ARRAY_SIZE(rules); r++)
		result = result * 31 + counts[r];
	return result ^ (u64)verdicts[ACCEPT] << 48 ^ (u64)verdicts[DROP] << 32 ^ (u64)verdicts[REJECT] << 16;
}

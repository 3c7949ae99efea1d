// Parses DNS messages (RFC 1035) in len slots of 256 bytes, each after its length: names with compression, questions and
// resource records. Digests names in lower case and addresses.
// build: -fno-builtin
#include "outside.h"

#define SLOT 256
#define BROKEN (-1)

/* The name at `at` in lower case, with dots; the place after it in the message. */
static int read_name(u8 *name, u32 *name_len, const u8 *message, u32 len, int at)
{
	int after = BROKEN, jumps = 0;
	u32 size = 0;

	for (;;) {
		u32 label;

		if (at < 0 || (u32)at >= len)
			return BROKEN;
		label = message[at++];
		if (!label)
			break;
		if ((label & 0xc0) == 0xc0) {
			if ((u32)at >= len || ++jumps > 16)
				return BROKEN;
			if (after == BROKEN)
				after = at + 1;
			at = (label & 0x3f) << 8 | message[at];
			continue;
		}
		if (label & 0xc0 || at + label > len || size + label + 1 > 255)
			return BROKEN;
		while (label--) {
			u8 c = message[at++];

			name[size++] = c >= 'A' && c <= 'Z' ? c + 32 : c;
		}
		name[size++] = '.';
	}
	*name_len = size;
	return after == BROKEN ? at : after;
}

static u64 parse(u8 *name, const u8 *message, u32 len)
{
	u32 questions, records, name_len, type, size;
	u64 hash;
	int at = 12;

	if (len < 12)
		return 1;
	hash = load_be16(message);
	if (message[2] >> 3 & 15)
		return 2;
	questions = load_be16(message + 4);
	records = load_be16(message + 6) + load_be16(message + 8) + load_be16(message + 10);
	while (questions--) {
		at = read_name(name, &name_len, message, len, at);
		if (at == BROKEN || at + 4u > len)
			return 3;
		hash = hash * 31 + digest(name, name_len) + load_be16(message + at);
		at += 4;
	}
	while (records--) {
		at = read_name(name, &name_len, message, len, at);
		if (at == BROKEN || at + 10u > len)
			return 4;
		hash = hash * 31 + digest(name, name_len);
		type = load_be16(message + at);
		size = load_be16(message + at + 8);
		at += 10;
		if (at + size > len)
			return 5;
		switch (type) {
		case 1: /* A */
			if (size != 4)
				return 6;
			hash ^= load_be32(message + at);
			break;
		case 28: /* AAAA */
			if (size != 16)
				return 7;
			hash ^= load_be64(message + at) ^ load_be64(message + at + 8);
			break;
		case 2: /* NS */
		case 5: /* CNAME */
			if (read_name(name, &name_len, message, len, at) == BROKEN)
				return 8;
			hash ^= digest(name, name_len);
			break;
		default:
			break;
		}
		at += size;
	}
	return hash;
}

WORKLOAD u64 prog(struct block *block)
{
	u64 result = 0;

	for (u32 i = 0; i < block->len; i++) {
		const u8 *slot = block->input + SLOT * i;

		result = result * 31 + parse(block->scratch, slot + 1, slot[0]);
	}
	return result;
}

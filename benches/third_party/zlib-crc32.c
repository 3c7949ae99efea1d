// The CRC-32 of zlib in libz-sys over len bytes, several words at a time.
#include <third_party.h>

#define Z_SOLO
#include "src/zlib/crc32.c"
THIRD_PARTY_END

WORKLOAD uint64_t prog(struct block *block)
{
	return crc32(0, block->input, block->len);
}

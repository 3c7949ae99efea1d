// The CRC-32 of zlib in libz-sys over len bytes, several words at a time.
#include <foreign.h>

#define Z_SOLO
#include "src/zlib/crc32.c"
FOREIGN_END

WORKLOAD uint64_t prog(struct block *block)
{
	return crc32(0, block->input, block->len);
}

// Numbers modulo the prime of secp256k1, of secp256k1-sys: len inversions by exponentiation, each result checked.
#include <third_party.h>

#define stderr NULL
#define fprintf(...) ((void)0)
#define USE_FORCE_WIDEMUL_INT64 1
#define VERIFY_CHECK(condition) ((void)0)
#include "depend/secp256k1/src/field_impl.h"
THIRD_PARTY_END

WORKLOAD uint64_t prog(struct block *block)
{
	uint64_t result = 0;

	for (uint64_t i = 0; i < block->len; i++) {
		rustsecp256k1_v0_10_0_fe x, root, square;
		uint8_t bytes[32];

		rustsecp256k1_v0_10_0_fe_set_b32_mod(&x, block->input + 32 * i);
		result += rustsecp256k1_v0_10_0_fe_sqrt(&root, &x);
		rustsecp256k1_v0_10_0_fe_sqr(&square, &root);
		rustsecp256k1_v0_10_0_fe_add(&square, &x);
		rustsecp256k1_v0_10_0_fe_normalize(&square);
		rustsecp256k1_v0_10_0_fe_get_b32(bytes, &square);
		result = result * 31 + digest(bytes, 32);
	}
	return result;
}

// One large program: eight functions that each contain every kernel. No kernel of its own; the bench that measures
// compilation builds it, because its object would be larger than all others together.
#include "block.h"
#undef KERNEL
#define KERNEL static inline __attribute__((always_inline))

#define prog alu64_prog
#include "alu64.bpf.c"
#undef prog
#define prog alu32_prog
#include "alu32.bpf.c"
#undef prog
#define prog sieve_prog
#include "sieve.bpf.c"
#undef prog
#define prog heapsort_prog
#include "heapsort.bpf.c"
#undef prog
#define prog fnv1a_prog
#include "fnv1a.bpf.c"
#undef prog
#define prog siphash_prog
#include "siphash.bpf.c"
#undef prog
#define prog sha256_prog
#include "sha256.bpf.c"
#undef prog
#define prog strsearch_prog
#include "strsearch.bpf.c"
#undef prog
#define prog matmul_prog
#include "matmul.bpf.c"
#undef prog
#define prog div64_prog
#include "div64.bpf.c"
#undef prog
#define prog switchvm_prog
#include "switchvm.bpf.c"
#undef prog
#define prog pktparse_prog
#include "pktparse.bpf.c"
#undef prog
#define prog hashtable_prog
#include "hashtable.bpf.c"
#undef prog
#define prog chacha20_prog
#include "chacha20.bpf.c"
#undef prog
#define prog json_prog
#include "json.bpf.c"
#undef prog
#define prog lz4_prog
#include "lz4.bpf.c"
#undef prog
#define prog stackvm_prog
#include "stackvm.bpf.c"
#undef prog
#define prog btree_prog
#include "btree.bpf.c"
#undef prog
#define prog utf8_prog
#include "utf8.bpf.c"
#undef prog
#define prog balancer_prog
#define be16 balancer_be16
#define PASS BALANCER_PASS
#define DROP BALANCER_DROP
#include "balancer.bpf.c"
#undef prog

#define FOLD(kernel) hash = hash * 31 + kernel##_prog(block)
#define PART(number)                                                                   \
	static __attribute__((noinline)) u64 part##number(struct block *block)         \
	{                                                                              \
		u64 hash = number;                                                     \
                                                                                       \
		FOLD(alu64), FOLD(alu32), FOLD(sieve), FOLD(heapsort), FOLD(fnv1a);    \
		FOLD(siphash), FOLD(sha256), FOLD(strsearch), FOLD(matmul), FOLD(div64); \
		FOLD(switchvm), FOLD(pktparse), FOLD(hashtable), FOLD(chacha20);       \
		FOLD(json), FOLD(lz4), FOLD(stackvm), FOLD(btree), FOLD(utf8);         \
		FOLD(balancer);                                                        \
		return hash;                                                           \
	}

PART(1)
PART(2)
PART(3)
PART(4)
PART(5)
PART(6)
PART(7)
PART(8)

__attribute__((section("syscall"), used)) u64 prog(struct block *block)
{
	return part1(block) ^ part2(block) ^ part3(block) ^ part4(block) ^ part5(block) ^ part6(block) ^
	       part7(block) ^ part8(block);
}

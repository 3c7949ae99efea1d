// The same kernel for machines without 32-bit jumps.
// build: -mcpu=v2
#include "../chacha20.bpf.c"

// The same kernel for machines without 32-bit jumps.
// build: -mcpu=v2
#include "../fnv1a.bpf.c"

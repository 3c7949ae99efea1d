// The same kernel for machines without 32-bit jumps.
// build: -mcpu=v2 -fno-builtin
#include "../stackvm.bpf.c"

// The second version of filter.bpf.c: it can close a UDP port.
#define SECOND_VERSION
#include "filter.bpf.c"

/* Foreign code includes it; see foreign.h. */
#define assert(condition) ((void)0)

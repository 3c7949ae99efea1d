/* Third-party code includes it; see third_party.h. */
#define assert(condition) ((void)0)

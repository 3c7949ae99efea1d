/* Foreign code includes it; see foreign.h. */
#define errno foreign_errno
